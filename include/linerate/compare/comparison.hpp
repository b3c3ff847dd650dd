// Predicted against measured: two Timelines joined task by task, with the error and the noise of
// each.
// Thread safety: values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/timeline.hpp"

namespace linerate::compare {

/// How two Timelines are compared.
struct CompareOptions {
  std::optional<int> warm_up = {};  // measured steps to drop; absent: default_warm_up()
  // A second measurement of the same; absent: halves of the first.
  const doc::Timeline* noise = nullptr;
};

/// One quantity of a step, seconds. Absent: not in that Timeline.
struct ComparedRow {
  std::string what;  // "step", "exposed communication", a task kind, or a task's subject
  std::string kind;  // of a task; empty otherwise
  int phase = 0;     // which exchange of the same set within a step
  std::optional<double> predicted_s;  // seconds in a predicted step
  std::optional<double> measured_s;   // seconds in a measured one
  std::optional<double> noise;        // relative difference of two measurements of the same

  /// predicted / measured - 1.
  std::optional<double> error() const;
};

/// A predicted and a measured Timeline, joined.
struct Comparison {
  ComparedRow step;                // the whole step
  ComparedRow exposed;             // communication: doc/scaling_factor.hpp
  std::vector<ComparedRow> kinds;  // sums over a step, by task kind
  std::vector<ComparedRow> tasks;  // joined on kind, set of parameters (else name) and phase
  // No partner: another bucket layout, or a task that is not modelled.
  std::vector<ComparedRow> only_predicted, only_measured;  // tasks of one of the two alone
  int predicted_steps = 0, measured_steps = 0;             // used
  int dropped_steps = 0;                                   // of the measured, as warm-up
  /// "a second run" or "halves of the measured run"; absent: too few steps for a noise.
  std::optional<std::string> noise_source;
  std::vector<std::string> notes;  // how the two differ, if they do
};

/// Joins two Timelines. Numbers are medians over measured steps, and means over simulated ones. If
/// a Plan has several variants, they are taken for each variant and the one before it, and their
/// mean is weighted as measured.
///
/// Noise is |other / measured - 1| of a second run. Without one it is the largest such difference
/// between interleaved halves (blocks of 1, 2 and 4 steps), in which a drift cannot hide. It is
/// absent below four measured steps. Warm-up is dropped on both sides when the first is a run, too.
/// Throws InputError when either Timeline has no step.
[[nodiscard]] Comparison compare(const doc::Timeline& predicted, const doc::Timeline& measured,
                                 const CompareOptions& options = {});

/// A relative error as texts print it: format_percent() with its sign, "+12 %", "-0.5 %", "0 %".
[[nodiscard]] std::string signed_percent(double error);
/// For a terminal: step, exposed communication, kinds, then what has no partner; tasks on request.
[[nodiscard]] std::string to_text(const Comparison& comparison, bool with_tasks);
/// The comparison as JSON: what `compare --json` prints.
[[nodiscard]] std::string to_json(const Comparison& comparison);

}  // namespace linerate::compare
