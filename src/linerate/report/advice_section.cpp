// An Advice as charts and tables. Words are those of its text.
#include "linerate/report/advice_section.hpp"

#include <fmt/format.h>

#include "linerate/core/text.hpp"
#include "linerate/core/units.hpp"
#include "linerate/report/advice_text.hpp"
#include "linerate/report/drawing.hpp"
#include "linerate/report/row_chart.hpp"

namespace linerate::report {
namespace {

std::string text_of(const std::optional<doc::Bounded>& i) {
  if (!i) return "–";
  if (!i->has_interval()) return format_time(i->value);
  return fmt::format("{} ({} – {})", format_time(i->value), format_time(*i->low),
                     format_time(*i->high));
}

// Ranked candidates alone share an axis: time per step times the steps it takes, in steps of the
// uncompressed run. An example: 10 ms a step and 1.1 times the steps is drawn at 11 ms.
RowChart chart_of(const doc::Advice& advice) {
  RowChart chart;
  chart.name = "Strategies by predicted time to target";
  bool weighted = false;
  for (const doc::Candidate* c : shown_candidates(advice, false)) {
    if (c->standing != doc::Standing::ranked || !c->target_s) continue;
    chart.rows.push_back({advice.named(c->strategy),
                          c->target_s->value,
                          c->target_s->low,
                          c->target_s->high,
                          c->strategy == advice.current,
                          {}});
    weighted = weighted || c->steps_to_target.has_value();
  }
  chart.label =
      weighted ? "Step time × steps to target relative to uncompressed" : "Predicted step time";
  return chart;
}

// All candidates, with their reasons: the chart shows only those that can be compared.
Table table_of(const doc::Advice& advice) {
  Table t{{"Strategy", "Standing", "Step", "Steps to target", "Memory a rank", "Trains", "Reason"},
          {},
          {false, false, true, true, true, false, false}};
  for (const doc::Candidate& c : advice.candidates)
    t.rows.push_back({advice.named(c.strategy), std::string(name_of(c.standing)), text_of(c.step_s),
                      c.steps_to_target ? fmt::format("× {:.3g}", c.steps_to_target->value) : "–",
                      format_size(c.memory_bytes), c.trains ? "yes" : "no", c.reason});
  return t;
}

std::string sentence_of(const doc::TurningPoint& t, const doc::Advice& a) {
  if (t.of_bandwidth())
    return fmt::format("The answer changes at a bandwidth of {}: {} below, {} above.",
                       bracket_of(t), a.named(t.below), a.named(t.above));
  return fmt::format(
      "{} has a shorter step than {} from a compression ratio of {} on. The steps it takes "
      "are "
      "not counted.",
      a.named(t.above), a.named(t.below), bracket_of(t));
}

}  // namespace

// Ceilings stand open after the figure, as they say what no strategy can reach.
Section section_of(const doc::Advice& advice) {
  Section section;
  section.title = fmt::format("Advice for {} on {} ranks at {}: {}", advice.workload, advice.ranks,
                              format_bit_rate(advice.bandwidth_bit_per_s / kBitsPerByte),
                              name_of(advice.verdict));
  if (advice.confidence == doc::Confidence::low) section.title += ", confidence low";
  section.paragraphs = paragraphs_of(advice);
  for (const doc::Straggler& s : advice.stragglers)
    section.paragraphs.push_back(fmt::format("Late rank {}: {}", s.rank, s.reason));
  section.figures.push_back({"Ranked strategies",
                             "The best setting of each exchange; the numbers have all settings. "
                             "Dot: prediction. Bar: its 90 % interval. Diamond: the strategy in use.",
                             drawing_of(chart_of(advice)), table_of(advice)});
  if (!advice.ceilings.empty()) {
    Table ceilings{{"Remedy and the most that it could gain", "Step", "What it means"},
                   {},
                   {false, true, false}};
    for (const doc::Ceiling& c : advice.ceilings)
      ceilings.rows.push_back({c.remedy, text_of(c.step_s), c.reason});
    section.table = std::move(ceilings);
  }
  for (const doc::TurningPoint& t : advice.turning_points)
    section.notes.push_back(sentence_of(t, advice));
  section.notes.insert(section.notes.end(), advice.notes.begin(), advice.notes.end());
  return section;
}

}  // namespace linerate::report
