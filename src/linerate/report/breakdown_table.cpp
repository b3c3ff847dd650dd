#include "linerate/report/breakdown_table.hpp"

#include <fmt/format.h>

#include <optional>

#include "linerate/core/text.hpp"
#include "linerate/trace/explain/breakdown.hpp"
#include "linerate/trace/explain/verdict.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"

namespace linerate::report {
namespace {

using trace::Breakdown;
using trace::Busy;

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : "n/a";
}

double mean_over_steps(const Breakdown& b, double Busy::*quantity) {
  if (b.steps.empty()) return b.whole.*quantity;
  double sum = 0;
  for (const trace::StepRow& s : b.steps) sum += s.busy.*quantity;
  return sum / static_cast<double>(b.steps.size());
}

}  // namespace

report::Table breakdown_table(const doc::Timeline& timeline, const std::string& label) {
  if (timeline.events.empty()) return {};
  const Breakdown b = trace::break_down(trace::job_of(timeline));
  const trace::Verdict v = trace::judge(b);
  report::Table table{{b.steps.empty() ? "Over the whole file" : "Mean of a step", label}, {}, {}};
  table.numbers = {false, true};
  const auto add = [&](const std::string& what, const std::string& text) {
    table.rows.push_back({what, text});
  };
  const auto add_time = [&](const char* what, double Busy::*quantity, bool known) {
    add(what, known ? format_time(mean_over_steps(b, quantity)) : "n/a");
  };
  const bool timed = !b.times_unknown, computed = !b.computation_unknown;
  const bool heard = timed && !b.communication_unknown;
  add_time(b.steps.empty() ? "Length" : "Step", &Busy::window_s, timed);
  add_time("Compute busy", &Busy::compute_s, computed);
  add_time("Communication busy", &Busy::communication_s, heard);
  add_time("Overlap of the two", &Busy::overlap_s, computed && heard);
  add_time("Exposed communication", &Busy::exposed_s, computed && heard);
  add_time("Neither", &Busy::idle_s, computed);
  add("Verdict",
      fmt::format("{}{}", v.leans() ? "inconclusive, leaning to " : "", name_of(v.finding)));
  add("Confidence", v.confidence ? fmt::format("{:.2f}", *v.confidence) : "n/a");
  for (std::size_t r = 0; r < trace::kRemedies; ++r)
    add(fmt::format("At most to gain: {}", trace::kRemedyNames[r]), percent(v.ceilings[r]));
  return table;
}

}  // namespace linerate::report
