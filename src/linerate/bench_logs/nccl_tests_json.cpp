// nccl-tests -J file (2025 on): {version, config{devices[]}, results[{size, count, type,
// out_of_place{}, in_place{}}]}. Each result becomes cells under columns, as if it had been
// printed, and is judged like text (bandwidth_log.hpp).
#include <fmt/format.h>
#include <simdjson.h>

#include "linerate/bench_logs/bandwidth_log.hpp"
#include "linerate/bench_logs/collective_log.hpp"
#include "linerate/bench_logs/json_part.hpp"
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/bench_logs/log_words.hpp"
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

}  // namespace linerate::bench_logs
