// Advice as text for a terminal.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "linerate/cost/collective_times.hpp"
#include "linerate/doc/advice.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/report/page.hpp"
#include "linerate/report/sections.hpp"

namespace linerate::report {

/// What is answered: the present strategy measured and predicted, what to do, what linerate's own
/// strategies would add.
std::vector<std::string> paragraphs_of(const doc::Advice& advice);

/// The turning points of bandwidth in words. `sentence` has places for the bandwidth and for the
/// strategies below and above it.
std::vector<std::string> turning_points_of(const doc::Advice& advice, std::string_view sentence);

/// The candidates of the short list, without `all`. An example: ten bucket sizes of one exchange
/// are tried. They are one family, and its best stands for them. A setting that is in use or
/// advised is shown whatever its place.
std::vector<const doc::Candidate*> shown_candidates(const doc::Advice& advice, bool all);

/// Without `all`: the best setting of each exchange, what is in use and what is advised.
std::string to_text(const doc::Advice& advice, bool all);

// Where the time of a Timeline goes, as a table of a page.

/// What `explain` says, a quantity a row; "n/a" for what is unknown. Means over steps and ranks, or
/// over the whole file if it knows no step; the column bears the file's name.
report::Table breakdown_table(const trace::Explanation& explanation, const std::string& label);

// What a calibration found, as a table for a terminal and as JSON.

/// A line a table of collectives: what was measured, how well the fit predicts what it did not see,
/// and where its law changes; then what probes found.
std::string to_text(const doc::Cluster& cluster);
/// The same, without the measurements: {"collectives": [...], ..., "notes": [...]}.
std::string summary_json(const doc::Cluster& cluster, const std::vector<std::string>& notes);

// Times of one collective as a table for a terminal and as JSON.

std::string to_text(const cost::CollectiveTimes& times);
/// {"predictions": [{"ranks", "size_bytes", "time_s", "interval_s", "extrapolated"}, ...]}; an
/// interval is null if nothing was measured: its error is unknown, not of width 0.
std::string to_json(const cost::CollectiveTimes& times);

// A Plan as a graph for GraphViz.

/// A digraph: a frame for each variant and in it one for each lane; an arrow leads to what waits, a
/// dashed one into the next step. Tasks that others drive have round corners.
std::string to_dot(const doc::Plan& plan);

// A Plan as tables for a terminal.

/// Seconds that a task is predicted to take; 0: unknown or nothing.
using SecondsOf = std::function<double(const doc::Task&)>;

/// Head, schedule, and for each variant its payloads, its tasks and its edges into the next step.
/// Without `seconds_of`: Task::seconds, which collectives do not have.
std::string text_of(const doc::Plan& plan, const SecondsOf& seconds_of = {});

/// "step 0: first-step, then: steady".
std::string schedule_of(const doc::Plan& plan);

// Predictions as a table for a terminal and as CSV.

/// A line a combination, then the job, then the notes.
std::string to_text(const doc::Predictions& predictions);
/// RFC 4180, units in the column names; what is unknown is empty. Without the notes.
std::string to_csv(const doc::Predictions& predictions);

/// Scaling factor over bandwidth, a picture a rank count; in braille if the locale shows Unicode,
/// else in ASCII. Throws UsageError if no prediction has a bandwidth.
std::string to_curves(const doc::Predictions& predictions, const std::string& locale);

// An interval of times as text.

/// "76.3 us .. 83.7 us"; if the ends are equal with three digits, with more, up to seven: "128.33
/// ms .. 128.34 ms". Both ends in seconds.
std::string time_range(double low_s, double high_s);

// A line chart in a terminal: braille dots (2 x 4 a character), or plain ASCII if the terminal
// cannot show them.

/// The chart as lines of text, each ending in '\n', followed by a key: braille lines carry their
/// letter at every data point, ASCII lines are drawn with it. If two lines meet, the later one is
/// seen. Gaps stay empty.
std::string terminal_curve(const LineChart& chart, bool ascii = false);

/// Does this locale (value of LC_ALL, LC_CTYPE or LANG, the first that is set) show UTF-8?
bool shows_unicode(const std::string& locale);

}  // namespace linerate::report
