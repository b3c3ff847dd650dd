// nccl-tests -J file (2025 on): {version, config{devices[]}, results[{size, count, type,
// out_of_place{}, in_place{}}]}. Each result becomes cells under columns, as if it had been
// printed, and is judged like text (bandwidth_log.hpp).
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "linerate/bench_logs/bandwidth_log.hpp"
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

using simdjson::dom::element;

std::string_view text_at(const element& object, const char* key) {
  std::string_view s;
  return object[key].get(s) == simdjson::SUCCESS ? s : std::string_view();
}

/// As nccl-tests prints it, numbers with six decimals. They may come as text; NaN is the text
/// "nan".
std::string cell_of(const element& object, const char* key) {
  if (double d = 0; object[key].get(d) == simdjson::SUCCESS) return fmt::format("{:.6f}", d);
  const auto words = words_of(text_at(object, key));
  return words.empty() ? "" : std::string(words[0]);
}

void list_devices(const element& root, ListedRanks& listed) {
  simdjson::dom::array devices;
  if (root["config"]["devices"].get(devices) != simdjson::SUCCESS) return;
  int next = 0;
  for (const element& d : devices) {
    const auto said = number_of(cell_of(d, "rank")), device = number_of(cell_of(d, "device"));
    const double rank = said ? *said : next++;
    const double group = number_of(cell_of(d, "group")).value_or(0);
    if (!(rank >= 0 && rank < 1e7 && group >= 0 && group < 1e7)) continue;
    listed.add(static_cast<int>(rank), static_cast<int>(group), text_at(d, "hostname"),
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
  return command + std::string(text_at(root, "args"));
}

/// One object of "results" as cells under columns.
class ResultRow {
 public:
  explicit ResultRow(const element& result) {
    columns_.bytes = add(result, "size"), columns_.count = add(result, "count");
    columns_.dtype = add(result, "type"), columns_.redop = add(result, "redop");
    columns_.root = add(result, "root");
    add_group(result, "out_of_place", columns_.timings[0]);
    add_group(result, "in_place", columns_.timings[1]);
  }

  std::optional<BandwidthRow> row() const { return row_of(cells_, columns_); }

 private:
  int add(const element& object, const char* key) {
    cells_.push_back(cell_of(object, key));
    return static_cast<int>(cells_.size()) - 1;
  }

  void add_group(const element& result, const std::string& name, TimingColumns& columns) {
    element group;  // null if it was not timed
    if (result[name].get(group) != simdjson::SUCCESS || !group.is_object()) return;
    columns.time = add(group, group["time"].error() ? "cpu_time" : "time");
    columns.algbw = add(group, "alg_bw"), columns.busbw = add(group, "bus_bw");
    if (!group["nwrong"].error()) columns.wrong = add(group, "nwrong");
    if (result[name + "_per_iter"].get(group) != simdjson::SUCCESS) return;
    columns.low = add(group, "min_us"), columns.high = add(group, "max_us");
  }

  Columns columns_;
  Cells cells_;
};

bool results_were_wrong(const element& root) {
  element bounds;
  if (root["out_of_bounds"].get(bounds) != simdjson::SUCCESS) return false;
  bool okay = true;
  return text_at(bounds, "okay") == "false" ||
         (bounds["okay"].get(okay) == simdjson::SUCCESS && !okay);
}

}  // namespace

bool is_nccl_tests_json(std::string_view head) {
  const std::size_t first = first_object(head);
  if (first == std::string_view::npos) return false;
  head.remove_prefix(first);
  // A PyTorch trace names its nccl_version too; its process groups may fill the head before the
  // first event.
  for (const char* key :
       {"\"traceEvents\"", "\"distributedInfo\"", "\"schemaVersion\"", "\"deviceProperties\""})
    if (head.find(key) != std::string_view::npos) return false;
  return head.find("\"nccl_version\"") != std::string_view::npos ||
         head.find("\"out_of_place\"") != std::string_view::npos;
}

/// A file is one run. Its command line names the test, but like a title of a text it is only
/// believed if the bandwidths agree.
CollectiveLog read_nccl_tests_json(trace::InputFile& input, const CollectiveLogOptions& options) {
  BandwidthLog log(input.name(), "nccl-tests JSON", options);
  const trace::PaddedText text(without_launcher(input.read_all().view()));
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
    const auto row = ResultRow(result).row();
    if (!row) log.refuse("");
    if (row && row->bytes > 0 && (row->timings[0].time > 0 || row->timings[1].time > 0))
      run.rows.push_back(*row);
  }
  log.add(std::move(run));
  return log.finish();
}

// rccl-tests -x FILE -Z json: flat objects, one a line (to mid-2025) or in a list. They have the
// columns of its CSV, and are read as that.

namespace {

/// What a table reads: without quotes, and without what parts its cells.
std::string cell_text(const simdjson::dom::element& value) {
  std::string text = simdjson::minify(value);
  std::erase_if(text, [](char c) { return c == '"' || c == ','; });
  return text;
}

/// A line of each object, in the columns of the first one. An object that cannot be parsed becomes
/// a line that the table refuses, so that it is counted.
std::string csv_of(std::string_view text) {
  simdjson::dom::parser parser;
  std::vector<std::string> keys;
  std::string csv;
  for (std::size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at)) {
    const std::string_view object = object_at(text, at);
    at += std::max<std::size_t>(1, object.size());
    simdjson::dom::object row;
    const trace::PaddedText padded(object);
    if (parser.parse(padded.data(), padded.size(), false).get_object().get(row)) {
      csv += fmt::format("{}\n",
                         object.substr(0, object.find('\n')));  // refused as a row, and counted
      continue;
    }
    if (row["size"].error() || row["time"].error()) continue;
    if (keys.empty()) {
      for (const auto& [key, value] : row) {
        csv += fmt::format("{}{}", keys.empty() ? "" : ",", key);
        keys.emplace_back(key);
      }
      csv += '\n';
    }
    for (const std::string& key : keys) {
      simdjson::dom::element value;
      const bool known = row[key].get(value) == simdjson::SUCCESS;
      csv += fmt::format("{}{}", key == keys.front() ? "" : ",", known ? cell_text(value) : "");
    }
    csv += '\n';
  }
  return csv;
}

}  // namespace

bool is_rccl_tests_json(std::string_view head) {
  return head.find("\"inPlace\"") != std::string_view::npos &&
         head.find("\"algBw\"") != std::string_view::npos;
}

CollectiveLog read_rccl_tests_json(trace::InputFile& input, const CollectiveLogOptions& options) {
  const trace::PaddedText text = input.read_all();
  trace::InputFile table = trace::InputFile::from_memory(csv_of(text.view()), input.name());
  CollectiveLog log = read_collective_table(table, options);
  log.format = "rccl-tests JSON";
  return log;
}

/// Braces are counted outside of strings; a backslash in a string hides the next character.
std::string_view object_at(std::string_view text, std::size_t at) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && c == '{')
      ++depth;
    else if (!quoted && c == '}' && --depth == 0)
      return text.substr(at, i + 1 - at);
  }
  return text.substr(at);
}

std::size_t first_object(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    // A key with a colon looks like a label, so that only what is before the brace is asked.
    const std::string_view line = text.substr(at, end - at);
    const std::size_t brace = line.find('{');
    if (brace != std::string_view::npos && without_label(line.substr(0, brace)).empty())
      return at + brace;
    at = end + 1;
  }
  return std::string_view::npos;
}

std::string without_launcher(std::string_view text) {
  const std::size_t at = first_object(text);
  if (at == std::string_view::npos) return "";
  const std::size_t line = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  const std::size_t begin = line == std::string_view::npos ? 0 : line + 1;
  const std::string_view label = text.substr(begin, at - begin);
  if (label.find_first_not_of(" \t\r") == std::string_view::npos)
    return std::string(object_at(text, at));
  std::string own;
  for (std::size_t i = begin; i < text.size();) {
    const std::size_t end = std::min(text.find('\n', i), text.size());
    const std::string_view of_any = text.substr(i, end - i);
    if (of_any.starts_with(label)) own.append(of_any.substr(label.size())).push_back('\n');
    i = end + 1;
  }
  return std::string(object_at(own, 0));
}

}  // namespace linerate::bench_logs
