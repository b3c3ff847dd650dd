// rccl-tests -x FILE -Z json: flat objects, one a line (to mid-2025) or in a list. They have the
// columns of its CSV, and are read as that.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "linerate/bench_logs/json_part.hpp"
#include "linerate/bench_logs/log_readers.hpp"

namespace linerate::bench_logs {
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

}  // namespace linerate::bench_logs
