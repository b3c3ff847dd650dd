#include "linerate/report/timeline_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "linerate/core/text.hpp"
#include "linerate/report/scale.hpp"

namespace linerate::report {
namespace {

constexpr double kLane = 20, kRowGap = 4, kTitle = 26, kRankGap = 8, kLabelSize = 11;

// A colour per kind, fixed, so that pages can be compared. Kinds that share one never meet in a
// row.
/// In the order of TaskKind.
constexpr std::array kColours =
    std::to_array<std::string_view>({"c0", "c6", "c3", "c4", "c5", "c7", "c2", "c2", "c1", "n",
                                     "c4", "c3", "c2", "c1", "n", "c0", "n"});
static_assert(kColours.size() == doc::kTaskKindNames.size());

std::string colour(doc::TaskKind kind) {
  return std::string(kColours[static_cast<std::size_t>(kind)]);
}

double height_of(const TimelineGroup& group) {
  double height = kTitle;
  for (std::size_t i = 0; i < group.rows.size(); ++i) {
    if (i > 0 && group.rows[i].rank != group.rows[i - 1].rank) height += kRankGap;
    height += kLane * static_cast<double>(group.rows[i].lanes.size()) + kRowGap;
  }
  return height + 12;
}

std::string row_name(const Row& row, bool several_ranks, Layout layout) {
  if (!several_ranks) return std::string(name_of(row.resource));
  return layout == Layout::wide ? fmt::format("rank {} {}", row.rank, name_of(row.resource))
                                : fmt::format("{} {}", row.rank, name_of(row.resource));
}

bool several_ranks(const TimelineGroup& group) {
  return std::any_of(group.rows.begin(), group.rows.end(),
                     [&](const Row& r) { return r.rank != group.rows.front().rank; });
}

std::string tooltip(const Bar& bar) {
  const std::string what = bar.events > 1
                               ? fmt::format("{} events of kind {}", bar.events, name_of(bar.kind))
                               : fmt::format("{} ({})", bar.label, name_of(bar.kind));
  return fmt::format("{}: {} from {}", what, format_time(bar.end_s - bar.start_s),
                     format_time(bar.start_s));
}

bool fits(std::string_view label, double width) {
  return !label.empty() && text_width(label, kLabelSize) <= width - 6;
}

struct Placed {
  const Bar* bar;
  double from, width;
  bool labelled;
};

// A run of bars of one kind, none wide enough for its own name, carries the kind once, in its
// middle.
void label_runs(Svg& svg, const std::vector<Placed>& lane, double y) {
  for (std::size_t i = 0; i < lane.size();) {
    std::size_t end = i + 1;
    const auto joins = [&](const Placed& a, const Placed& b) {
      return !b.labelled && b.bar->kind == a.bar->kind && b.from - (a.from + a.width) < 3;
    };
    while (!lane[i].labelled && end < lane.size() && joins(lane[end - 1], lane[end])) ++end;
    const double width = lane[end - 1].from + lane[end - 1].width - lane[i].from;
    const std::string_view kind = name_of(lane[i].bar->kind);
    if (!lane[i].labelled && fits(kind, width))
      svg.text(lane[i].from + width / 2, y, kind, Anchor::middle, "in");
    i = end;
  }
}

// Labels are never cut into riddles and never overlap: a name that does not fit is left to the
// tooltip.
void draw_lane(Svg& svg, const std::vector<Bar>& lane, double y, const Scale& x) {
  std::vector<Placed> placed;
  for (const Bar& bar : lane) {
    const double from = x(bar.start_s), width = std::max(0.4, x(bar.end_s) - from);
    svg.rect(from, y + 1, width, kLane - 2, colour(bar.kind) + (width > 3 ? " bar edged" : " bar"),
             tooltip(bar));
    placed.push_back({&bar, from, width, fits(bar.label, width)});
  }
  const double baseline = y + kLane / 2 + 4;
  for (const Placed& p : placed)
    if (p.labelled) svg.text(p.from + p.width / 2, baseline, p.bar->label, Anchor::middle, "in");
  label_runs(svg, placed, baseline);
}

double draw_group(Svg& svg, const TimelineGroup& group, double y, const Scale& x, double left,
                  double right, Layout layout) {
  svg.text(0, y + 14, shortened(group.title, kFontSize, width_of(layout) - 4), Anchor::start,
           "strong");
  y += kTitle;
  const bool ranks = several_ranks(group);
  for (std::size_t i = 0; i < group.rows.size(); ++i) {
    const Row& row = group.rows[i];
    if (i > 0 && row.rank != group.rows[i - 1].rank) y += kRankGap;
    svg.text(left - 8, y + kLane / 2 + 4, row_name(row, ranks, layout), Anchor::end, "tick");
    svg.rect(left, y, right - left, kLane * static_cast<double>(row.lanes.size()), "track");
    for (const std::vector<Bar>& lane : row.lanes) {
      draw_lane(svg, lane, y, x);
      y += kLane;
    }
    y += kRowGap;
  }
  svg.line(x(group.length_s), y + 4, x(group.length_s), y - (height_of(group) - kTitle - 12) - 4,
           "end");
  return y + 12;
}

}  // namespace

std::string draw(const TimelineChart& chart, Layout layout) {
  double height = 40, longest = 0, widest = 0;
  for (const TimelineGroup& g : chart.groups) {
    height += height_of(g);
    longest = std::max(longest, g.length_s);
    for (const Row& row : g.rows)
      widest = std::max(widest, text_width(row_name(row, several_ranks(g), layout), kFontSize));
  }
  const double width = width_of(layout), left = widest + 8, right = width - 10;
  Svg svg(width, longest > 0 ? height : 80);
  if (!(longest > 0)) {
    svg.text(width / 2, 44, "No event with a duration to draw", Anchor::middle, "label");
    return svg.str(chart.name);
  }
  const double unit = longest < 1e-3 ? 1e-6 : longest < 1 ? 1e-3 : 1;
  const Scale x = Scale::linear(0, longest, left, right);
  const double bottom = height - 40;
  for (const double tick : linear_ticks(0, longest / unit, layout == Layout::wide ? 10 : 5)) {
    svg.line(x(tick * unit), 4, x(tick * unit), bottom, "grid");
    const std::string label = fmt::format("{:g}", tick);
    const double limit = width - text_width(label, kFontSize) / 2;
    svg.text(std::min(x(tick * unit), limit), bottom + 16, label, Anchor::middle, "tick");
  }
  double y = 0;
  for (const TimelineGroup& g : chart.groups) y = draw_group(svg, g, y, x, left, right, layout);
  svg.text((left + right) / 2, bottom + 34,
           fmt::format("Time since the start of the step, {}", unit == 1      ? "s"
                                                               : unit == 1e-3 ? "ms"
                                                                              : "us"),
           Anchor::middle, "label");
  return svg.str(chart.name);
}

std::string legend(const TimelineChart& chart) {
  std::set<doc::TaskKind> kinds;
  for (const TimelineGroup& g : chart.groups)
    for (const Row& row : g.rows)
      for (const auto& lane : row.lanes)
        for (const Bar& bar : lane) kinds.insert(bar.kind);
  std::string items;
  for (const doc::TaskKind kind : kinds)
    items += fmt::format(
        "<li><svg class=\"key\" viewBox=\"0 0 28 12\" aria-hidden=\"true\"><rect x=\"1\" y=\"1\" "
        "width=\"26\" "
        "height=\"10\" class=\"{} bar edged\"/></svg>{}</li>",
        colour(kind), name_of(kind));
  return "<ul class=\"legend\">" + items + "</ul>\n";
}

}  // namespace linerate::report
