#include "linerate/cli/whatif_print.hpp"

#include <fmt/format.h>

#include <cmath>

#include "linerate/cli/time_range.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/report/text_table.hpp"

namespace linerate::cli {
namespace {

using advise::Prediction;
using advise::Preset;

// Whole numbers without ".0": rates and ratios read better.
doc::Json number(double value) {
  if (std::abs(value) < 9e15 && value == std::floor(value)) return static_cast<std::int64_t>(value);
  return value;
}
doc::Json number(const std::optional<double>& value) {
  return value ? number(*value) : doc::Json(nullptr);
}

doc::Json json_of_prediction(const Prediction& p, Preset preset) {
  doc::Json json = {{"strategy", p.strategy},
                    {"changes_convergence", p.changes_convergence},
                    {"ranks", p.ranks},
                    {"bandwidth_bit_per_s", number(p.bandwidth_bit_per_s)},
                    {"compression_ratio", number(p.compression_ratio)},
                    {"step_s", doc::json_of(p.step_s)},
                    {"interval_s", nullptr},
                    {"scaling_factor", doc::json_of(p.scaling_factor)}};
  if (p.interval) json["interval_s"] = {p.interval->low_s, p.interval->high_s};
  if (preset == Preset::agarwal2021) {
    json["required_ratio"] = doc::json_of(p.required_ratio);
    json["encode_budget_s"] = doc::json_of(p.encode_budget_s);
  }
  return json;
}

std::string cell(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

// RFC 4180: a strategy with options holds commas.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string time_or_unknown(const std::optional<double>& seconds) {
  if (!seconds) return "unknown";
  return *seconds < 0 ? "-" + format_time(-*seconds) : format_time(*seconds);
}

}  // namespace

void print_json(const advise::Answer& answer, Preset preset) {
  doc::Json list = doc::Json::array();
  for (const Prediction& p : answer.predictions) list.push_back(json_of_prediction(p, preset));
  fmt::print("{}\n", doc::Json{{"predictions", list}}.dump(1));
}

void print_csv(const advise::Answer& answer, Preset preset) {
  const bool agarwal = preset == Preset::agarwal2021;
  fmt::print(
      "strategy,ranks,bandwidth_bit_per_s,compression_ratio,step_s,step_low_s,step_high_s,"
      "scaling_factor{}\n",
      agarwal ? ",required_ratio,encode_budget_s" : "");
  for (const Prediction& p : answer.predictions) {
    fmt::print("{},{},{},{},{},{},{},{}", quoted(p.strategy), p.ranks, cell(p.bandwidth_bit_per_s),
               p.compression_ratio, cell(p.step_s), p.interval ? cell(p.interval->low_s) : "",
               p.interval ? cell(p.interval->high_s) : "", cell(p.scaling_factor));
    if (agarwal) fmt::print(",{},{}", cell(p.required_ratio), cell(p.encode_budget_s));
    fmt::print("\n");
  }
}

void print_table(const advise::Answer& answer, const advise::Question& question,
                 const doc::Workload& workload) {
  std::vector<report::TextColumn> columns = {{"strategy"},     {"ranks", true}, {"bandwidth", true},
                                             {"ratio", true},  {"step", true},  {"exposed", true},
                                             {"scaling", true}};
  std::vector<std::vector<std::string>> rows;
  bool intervals = false;
  const bool agarwal = question.preset == Preset::agarwal2021;
  for (const Prediction& p : answer.predictions) intervals |= p.interval.has_value();
  if (intervals) columns.push_back({"90 % interval", true});
  if (agarwal)
    columns.push_back({"needed ratio", true}), columns.push_back({"encode budget", true});
  for (const Prediction& p : answer.predictions) {
    std::vector<std::string> cells = {
        p.strategy,
        std::to_string(p.ranks),
        p.bandwidth_bit_per_s ? format_bit_rate(*p.bandwidth_bit_per_s / 8) : "unknown",
        fmt::format("{:g}", p.compression_ratio),
        time_or_unknown(p.step_s),
        time_or_unknown(p.exposed_s),
        p.scaling_factor ? fmt::format("{:.4f}", *p.scaling_factor) : "unknown"};
    if (intervals)
      cells.push_back(p.interval ? time_range(p.interval->low_s, p.interval->high_s) : "unknown");
    if (agarwal) {
      cells.push_back(p.required_ratio ? fmt::format("{:.3f}", *p.required_ratio) : "infeasible");
      cells.push_back(p.encode_budget_s ? time_or_unknown(p.encode_budget_s) : "n/a");
    }
    rows.push_back(std::move(cells));
  }
  fmt::print("{}", report::text_table(columns, rows));
  const bool known = workload.step_s || workload.forward_s;
  fmt::print("{}: {} gradients, {}; one rank: {}\n", workload.name, workload.gradients.size(),
             format_size(static_cast<double>(workload.gradient_bytes())),
             known ? format_time(workload.one_rank_step_s()) : "unknown");
  if (agarwal)
    fmt::print(
        "gamma {:g}, epsilon {:g}: \"needed ratio\" keeps the step within 1 + epsilon of the "
        "slowed backward pass; \"encode budget\" is what encode + decode may cost.\n",
        question.gamma, question.epsilon);
  if (!intervals && question.preset == Preset::none)
    fmt::print("note: no interval: the links were given, not measured; calibrate to get one\n");
  for (const std::string& note : answer.notes) fmt::print("note: {}\n", note);
}

}  // namespace linerate::cli
