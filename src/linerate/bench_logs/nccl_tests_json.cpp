// nccl-tests -J file (2025 on): {version, config{devices[]}, results[{size, count, type,
// out_of_place{}, in_place{}}]}.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "linerate/bench_logs/bandwidth_log.hpp"
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/bench_logs/log_words.hpp"
#include "linerate/core/error.hpp"

namespace linerate::bench_logs {
namespace {

using simdjson::dom::element;

/// Numbers may come as text; NaN is the text "nan", an absent group is null.
std::optional<double> number_at(const element& object, const char* key) {
  element value;
  if (object[key].get(value) != simdjson::SUCCESS) return std::nullopt;
  if (double d = 0; value.get(d) == simdjson::SUCCESS) return d;
  if (std::string_view s; value.get(s) == simdjson::SUCCESS) {
    const auto words = words_of(s);
    return words.empty() ? std::nullopt : number_of(words[0]);
  }
  return std::nullopt;
}

std::string_view text_field(const element& object, const char* key) {
  std::string_view s;
  return object[key].get(s) == simdjson::SUCCESS ? s : std::string_view();
}

void list_devices(const element& root, ListedRanks& listed) {
  simdjson::dom::array devices;
  if (root["config"]["devices"].get(devices) != simdjson::SUCCESS) return;
  int next = 0;
  for (const element& d : devices) {
    const double rank = number_at(d, "rank").value_or(next++);
    const double group = number_at(d, "group").value_or(0);
    const auto device = number_at(d, "device");
    if (!(rank >= 0 && rank < 1e7 && group >= 0 && group < 1e7)) continue;
    listed.add(static_cast<int>(rank), static_cast<int>(group), text_field(d, "hostname"),
               device ? fmt::format("{:g}", *device) : "");
  }
}

/// The command line, one word an argument or one text.
std::string command_of(const element& root) {
  std::string command;
  simdjson::dom::array args;
  if (root["args"].get(args) == simdjson::SUCCESS)
    for (const element& a : args)
      if (std::string_view s; a.get(s) == simdjson::SUCCESS) command += std::string(s) + " ";
  return command + std::string(text_field(root, "args"));
}

/// Numbers are written with six decimals.
std::optional<Interval> written(std::optional<double> value) {
  if (!value || *value < 0) return std::nullopt;
  const double slack = 0.5e-6 + 1e-12 * *value;
  return Interval{std::max(0.0, *value - slack), *value + slack};
}

Timing timing_of(const element& group) {
  Timing t;
  const auto time = number_at(group, "time");
  const auto us = time ? time : number_at(group, "cpu_time");
  if (!us || *us <= 0) return t;
  t.time = *us, t.time_range = *written(us);
  t.algbw = written(number_at(group, "alg_bw")), t.busbw = written(number_at(group, "bus_bw"));
  const auto wrong = number_at(group, "nwrong");
  if (element field; group["nwrong"].get(field) == simdjson::SUCCESS) t.checked = wrong.has_value();
  t.wrong = wrong.value_or(0);
  return t;
}

/// nullopt when size or type cannot be read.
std::optional<BandwidthRow> row_of(const element& result) {
  BandwidthRow row;
  const auto size = number_at(result, "size");
  const auto type = dtype_of_log(text_field(result, "type"));
  if (!size || *size < 0 || *size > 1e15 || !type) return std::nullopt;
  row.bytes = *size, row.dtype = *type;
  row.count = number_at(result, "count");
  if (const std::string_view redop = text_field(result, "redop"); !redop.empty())
    row.none = redop == "none", row.reduces = !row.none;
  if (const auto root = number_at(result, "root")) row.rooted = *root >= 0;
  int g = 0;
  for (const char* name : {"out_of_place", "in_place"}) {
    element group;
    if (result[name].get(group) == simdjson::SUCCESS && group.is_object())
      row.timings[g] = timing_of(group);
    // Of single iterations, where they were timed.
    if (result[std::string(name) + "_per_iter"].get(group) == simdjson::SUCCESS) {
      row.timings[g].low = number_at(group, "min_us").value_or(0);
      row.timings[g].high = number_at(group, "max_us").value_or(0);
    }
    ++g;
  }
  return row;
}

bool results_were_wrong(const element& root) {
  element bounds;
  if (root["out_of_bounds"].get(bounds) != simdjson::SUCCESS) return false;
  bool okay = true;
  return text_field(bounds, "okay") == "false" ||
         (bounds["okay"].get(okay) == simdjson::SUCCESS && !okay);
}

}  // namespace

bool is_nccl_tests_json(std::string_view head) {
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || head[first] != '{') return false;
  // A PyTorch trace names its nccl_version too; its process groups may fill the head before the
  // first event.
  for (const char* key :
       {"\"traceEvents\"", "\"distributedInfo\"", "\"schemaVersion\"", "\"deviceProperties\""})
    if (head.find(key) != std::string_view::npos) return false;
  return head.find("\"nccl_version\"") != std::string_view::npos ||
         head.find("\"out_of_place\"") != std::string_view::npos;
}

CollectiveLog read_nccl_tests_json(trace::Input& input, const CollectiveLogOptions& options) {
  BandwidthLog log(input.name(), "nccl-tests JSON", options);
  const trace::PaddedText text = input.read_all();
  simdjson::dom::parser parser;
  element root;
  if (const auto error = parser.parse(text.data(), text.size(), false).get(root))
    throw InputError(log.source(),
                     fmt::format("not valid JSON: {}", simdjson::error_message(error)));
  simdjson::dom::array results;
  if (root["results"].get(results) != simdjson::SUCCESS)
    throw InputError(log.source(), "expected an array \"results\" of nccl-tests, found none");
  BandwidthRun run;
  list_devices(root, run.listed);
  if (const BandwidthTest* test = test_in(command_of(root)))
    run.titles.emplace_back(TitleStrength::command, test);
  run.failed = results_were_wrong(root);
  for (const element& result : results) {
    const auto row = row_of(result);
    if (!row) log.refuse("");
    if (row && row->bytes > 0 && (row->timings[0].time > 0 || row->timings[1].time > 0))
      run.rows.push_back(*row);
  }
  log.add(std::move(run));
  return log.finish();
}

}  // namespace linerate::bench_logs
