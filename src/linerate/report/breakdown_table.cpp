#include "linerate/report/breakdown_table.hpp"

#include <fmt/format.h>

#include "linerate/core/text.hpp"

namespace linerate::report {
namespace {

using trace::Breakdown;
using trace::Busy;

// Steps of a trace may hold several updates of the parameters each, which is what a step is
// elsewhere: it is divided by them. An example: two steps of 40 and 44 ms with two updates each
// have a mean of 21 ms.
double mean_over_steps(const Breakdown& b, double Busy::*quantity) {
  if (b.steps.empty()) return b.whole.*quantity;
  double sum = 0;
  for (const trace::StepRow& s : b.steps) sum += s.busy.*quantity;
  return sum / static_cast<double>(b.steps.size()) / b.updates;
}

}  // namespace

report::Table breakdown_table(const trace::Explanation& e, const std::string& label) {
  const Breakdown& b = e.breakdown;
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
  if (b.step_s)
    add("Median step", format_time(*b.step_s));
  else
    add_time("Length", &Busy::window_s, timed);
  add_time("Compute busy", &Busy::compute_s, computed);
  add_time("Communication busy", &Busy::communication_s, heard);
  add_time("Overlap of the two", &Busy::overlap_s, computed && heard);
  add_time("Exposed communication", &Busy::exposed_s, computed && heard);
  add_time("Neither", &Busy::idle_s, computed);
  for (const std::vector<std::string>& row : trace::gain_rows(e.verdict))
    add("Shorter with " + row[0],
        row[1] == row[2] ? row[1] : fmt::format("{}, at most {}", row[1], row[2]));
  return table;
}

}  // namespace linerate::report
