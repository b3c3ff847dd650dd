// The same predictions for people and for programs. The table rounds and leaves out what no
// prediction has. CSV has every digit, plain units, and one set of columns for all rows.
#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/core/units.hpp"
#include "linerate/report/texts.hpp"

namespace linerate::report {
namespace {

using doc::Prediction;
using doc::Predictions;

constexpr const char* kUnknown = "unknown";

// Shortest digits that read back as the same number; nothing for what is unknown.
std::string cell(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

// A strategy with options holds commas. RFC 4180: the field stands in quotes, and a quote inside is
// doubled.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

// Exposed time by exclusion can be negative.
std::string time_or(const std::optional<double>& seconds, const char* otherwise) {
  if (!seconds) return otherwise;
  return *seconds < 0 ? "-" + format_time(-*seconds) : format_time(*seconds);
}

/// The optional columns that some prediction needs.
struct Columns {
  bool ratios = false, intervals = false, agarwal = false;
};

Columns columns_of(const Predictions& all) {
  const auto any = [&](auto&& has) { return std::ranges::any_of(all.predictions, has); };
  return {any([](const Prediction& p) { return p.compression_ratio != 1; }), any(doc::has_interval),
          all.preset == doc::kAgarwal2021};
}

// Agarwal's columns: the ratio that is enough with the paper's buckets, the same with those of DDP,
// and what encoding may take. If no ratio is enough it is "infeasible".
std::vector<std::string> row_of(const Prediction& p, const Columns& columns) {
  std::vector<std::string> row = {
      p.strategy, std::to_string(p.ranks),
      p.bandwidth_bit_per_s ? format_bit_rate(*p.bandwidth_bit_per_s / kBitsPerByte) : kUnknown};
  if (columns.ratios)
    row.push_back(p.compression_ratio < 1000 ? fmt::format("{:.3g}", p.compression_ratio)
                                             : fmt::format("{:.0f}", p.compression_ratio));
  row.push_back(p.step_s ? format_time(p.step_s->value) : kUnknown);
  row.push_back(time_or(p.exposed_communication_s, kUnknown));
  row.push_back(p.scaling_factor ? fmt::format("{:#.3g}", *p.scaling_factor) : kUnknown);
  if (columns.intervals)
    row.push_back(has_interval(p) ? time_range(*p.step_s->low, *p.step_s->high) : kUnknown);
  if (columns.agarwal) {
    for (const std::optional<double>& ratio : {p.required_ratio, p.required_ratio_ddp})
      row.push_back(ratio ? fmt::format("{:.3f}", *ratio) : "infeasible");
    row.push_back(time_or(p.encode_budget_s, "n/a"));
  }
  return row;
}

/// By exclusion: a line a prediction that knows its parts; empty if none does. A part's time is
/// what the step takes with it and all that come before it, less what it takes without it.
std::string parts_text(const std::vector<Prediction>& predictions) {
  std::vector<std::vector<std::string>> rows;
  for (const Prediction& p : predictions) {
    if (!p.parts_s) continue;
    std::vector<std::string>& row = rows.emplace_back();
    row = {p.strategy, std::to_string(p.ranks)};
    for (const double seconds : *p.parts_s) row.push_back(time_or(seconds, kUnknown));
  }
  if (rows.empty()) return "";
  std::vector<std::string> columns = {"strategy", ">ranks"};
  for (const std::string title : kPartTitles) columns.push_back(">" + title);
  return "\nexposed time of each part of the step: what the step would save without it\n" +
         text_table(columns, rows) + "\n";
}

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

std::string to_text(const Predictions& all) {
  const Columns has = columns_of(all);
  std::vector<std::string> columns = {"strategy", ">ranks", ">bandwidth"};
  if (has.ratios) columns.push_back(">ratio");
  columns.insert(columns.end(), {">step", ">exposed", ">scaling"});
  if (has.intervals) columns.push_back(">90 % interval");
  if (has.agarwal) columns.insert(columns.end(), {">needed ratio", ">DDP's", ">encode budget"});
  std::vector<std::vector<std::string>> rows;
  for (const Prediction& p : all.predictions) rows.push_back(row_of(p, has));
  // What was asked about, so that a saved text says what it belongs to.
  const std::string job = fmt::format(
      "{}: {} gradients, {}; one rank: {}\n", all.workload, all.gradients,
      format_size(static_cast<double>(all.gradient_bytes)), time_or(all.one_rank_step_s, kUnknown));
  std::string text = text_table(columns, rows) + job +
                     (has.ratios ? "ratio: payloads are this many times smaller; " : "") +
                     "exposed: communication that no computation covers; "
                     "scaling: one rank's step / the step\n" +
                     parts_text(all.predictions);
  if (!has.intervals && all.preset.empty())
    text +=
        "note: no interval, because the links were given, not measured; linerate calibrate "
        "measures them\n";
  for (const std::string& note : all.notes) text += "note: " + note + "\n";
  return text;
}

// Columns depend on what is asked alone, not on what is known: programs find them by name.
std::string to_csv(const Predictions& all) {
  const bool agarwal = all.preset == doc::kAgarwal2021;
  std::string text =
      "strategy,ranks,bandwidth_bit_per_s,compression_ratio,step_s,step_low_s,step_high_s,"
      "scaling_factor,exposed_communication_s";
  const bool parts = std::ranges::any_of(all.predictions,
                                         [](const Prediction& p) { return p.parts_s.has_value(); });
  if (agarwal) text += ",required_ratio,required_ratio_ddp,encode_budget_s";
  if (parts)
    for (const std::string_view part : doc::kStepPartNames) text += fmt::format(",{}_s", part);
  text += "\n";
  for (const Prediction& p : all.predictions) {
    const doc::Bounded step = p.step_s.value_or(doc::Bounded{});
    text += fmt::format("{},{},{},{},{},{},{},{},{}", quoted(p.strategy), p.ranks,
                        cell(p.bandwidth_bit_per_s), p.compression_ratio,
                        p.step_s ? cell(step.value) : "", cell(step.low), cell(step.high),
                        cell(p.scaling_factor), cell(p.exposed_communication_s));
    if (agarwal)
      text += fmt::format(",{},{},{}", cell(p.required_ratio), cell(p.required_ratio_ddp),
                          cell(p.encode_budget_s));
    for (std::size_t part = 0; parts && part < doc::kStepPartNames.size(); ++part)
      text += "," + (p.parts_s ? cell((*p.parts_s)[part]) : "");
    text += "\n";
  }
  return text;
}

// No curve is an error here, as it was asked for by name.
std::string to_curves(const Predictions& all, const std::string& locale) {
  const bool ascii = !shows_unicode(locale);
  std::string text;
  for (const LineChart& chart : scaling_charts(all.predictions))
    text += fmt::format("\n{}\n\n{}", chart.name, terminal_curve(chart, ascii));
  if (text.empty())
    throw UsageError("curves over bandwidth need --bandwidth, or a Cluster with one");
  return text;
}

report::Table breakdown_table(const trace::Explanation& e, const std::string& label) {
  const Breakdown& b = e.breakdown;
  report::Table table{{b.steps.empty() ? "Over the whole file" : "Mean of a step", ">" + label},
                      {}};
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
