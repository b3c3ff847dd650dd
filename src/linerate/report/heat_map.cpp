#include "linerate/report/heat_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "linerate/core/error.hpp"

namespace linerate::report {
namespace {

constexpr double kCellHeight = 46;

// A … Z, then A2 … Z2.
std::string letter(int choice) {
  const std::string base(1, static_cast<char>('A' + choice % 26));
  return choice < 26 ? base : base + std::to_string(choice / 26 + 1);
}

HeatMap transposed(const HeatMap& map) {
  HeatMap out{map.name, map.row_label, map.column_label, map.rows, map.columns, map.choices, {}};
  for (std::size_t c = 0; c < map.columns.size(); ++c)
    for (std::size_t r = 0; r < map.rows.size(); ++r)
      out.cells.push_back(map.cells[r * map.columns.size() + c]);
  return out;
}

// The name where it fits, else the letter that the legend explains.
void draw_cell(Svg& svg, const HeatMap& map, const HeatCell& cell, double x, double y, double width,
               const std::string& where) {
  if (cell.choice < 0) {
    svg.rect(x + 1, y + 1, width - 2, kCellHeight - 2, "track", where + ": undefined");
    svg.text(x + width / 2, y + kCellHeight / 2 + 4, "–", Anchor::middle, "tick");
    return;
  }
  const std::string& name = map.choices[static_cast<std::size_t>(cell.choice)];
  const std::string colour = fmt::format("c{}", cell.choice % 8);
  svg.rect(x + 1, y + 1, width - 2, kCellHeight - 2, colour + " cell",
           fmt::format("{}: {}{}, {}", where, name,
                       cell.tied ? " (not told apart from others)" : "", cell.value));
  svg.rect(x + 1, y + 1, 4, kCellHeight - 2, colour + " mark");
  const std::string mark = cell.tied ? "≈ " : "";
  const std::string full = mark + letter(cell.choice) + " " + name;
  const bool fits = text_width(full, kFontSize) <= width - 14;
  svg.text(x + width / 2 + 2, y + 20, fits ? full : mark + letter(cell.choice), Anchor::middle,
           "strong");
  if (text_width(cell.value, kFontSize) <= width - 8)
    svg.text(x + width / 2 + 2, y + 36, cell.value, Anchor::middle, "in");
}

}  // namespace

std::string draw(const HeatMap& given, Layout layout) {
  LINERATE_CHECK(given.cells.size() == given.columns.size() * given.rows.size(),
                 "cells of " + given.name);
  const bool turn = layout == Layout::narrow && given.columns.size() > given.rows.size();
  const HeatMap map = turn ? transposed(given) : given;
  const double width = width_of(layout);
  if (map.cells.empty()) {
    Svg svg(width, 80);
    svg.text(width / 2, 44, "No defined value to draw", Anchor::middle, "label");
    return svg.str(map.name);
  }
  double left = 0;
  for (const std::string& row : map.rows) left = std::max(left, text_width(row, kFontSize));
  left += 10;
  const double top = 44, cell = (width - left) / static_cast<double>(map.columns.size());
  Svg svg(width, top + kCellHeight * static_cast<double>(map.rows.size()) + 6);
  svg.text(0, 14, "Down: " + map.row_label + ". Across: " + map.column_label + ".", Anchor::start,
           "label");
  double free_from = 0;
  for (std::size_t c = 0; c < map.columns.size(); ++c) {
    const double middle = left + cell * (static_cast<double>(c) + 0.5);
    const double half = text_width(map.columns[c], kFontSize) / 2;
    if (middle - half < free_from) continue;
    svg.text(middle, top - 8, map.columns[c], Anchor::middle, "tick");
    free_from = middle + half + 4;
  }
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    const double y = top + kCellHeight * static_cast<double>(r);
    svg.text(left - 8, y + kCellHeight / 2 + 4, map.rows[r], Anchor::end, "tick");
    for (std::size_t c = 0; c < map.columns.size(); ++c)
      draw_cell(svg, map, map.cells[r * map.columns.size() + c],
                left + cell * static_cast<double>(c), y, cell, map.columns[c] + ", " + map.rows[r]);
  }
  return svg.str(map.name);
}

std::string legend(const HeatMap& map) {
  std::set<int> winners;
  bool tied = false;
  for (const HeatCell& cell : map.cells) {
    if (cell.choice >= 0) winners.insert(cell.choice);
    tied = tied || cell.tied;
  }
  std::string items;
  for (const int choice : winners)
    items += fmt::format(
        "<li><svg class=\"key\" viewBox=\"0 0 28 12\" aria-hidden=\"true\"><rect x=\"1\" y=\"0\" "
        "width=\"26\" "
        "height=\"12\" class=\"c{} cell\"/><rect x=\"1\" y=\"0\" width=\"4\" height=\"12\" "
        "class=\"c{} mark\"/></svg>"
        "<span><b>{}</b> {}</span></li>",
        choice % 8, choice % 8, letter(choice),
        escape(map.choices[static_cast<std::size_t>(choice)]));
  if (tied)
    items +=
        "<li><span><b>≈</b> not told apart from the next best: their intervals overlap</span></li>";
  return "<ul class=\"legend\">" + items + "</ul>\n";
}

}  // namespace linerate::report
