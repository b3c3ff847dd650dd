// nccl-tests -J file (2025 on): {version, config{devices[]}, results[{size, count, type,
// out_of_place{}, in_place{}}]}.
#include <fmt/format.h>
#include <simdjson.h>

#include "linerate/core/error.hpp"
#include "linerate/trace/collective_log/log_readers.hpp"
#include "linerate/trace/collective_log/log_words.hpp"

namespace linerate::trace {
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

std::string_view text_at(const element& object, const char* key) {
  std::string_view s;
  return object[key].get(s) == simdjson::SUCCESS ? s : std::string_view();
}

std::optional<int> devices_of(const element& root) {
  simdjson::dom::array devices;
  if (root["config"]["devices"].get(devices) != simdjson::SUCCESS || devices.size() == 0)
    return std::nullopt;
  int ranks = 0;
  for (const element& d : devices)
    ranks = std::max(ranks, static_cast<int>(number_at(d, "rank").value_or(-1)) + 1);
  return ranks > 0 ? ranks : static_cast<int>(devices.size());
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

std::optional<Collective> named_in(const std::string& name, const std::string& command) {
  if (const auto c = collective_named_in(command)) return c;
  for (const char* other : {"sendrecv_perf", "scatter_perf", "gather_perf", "hypercube_perf"})
    if (command.find(other) != std::string::npos)
      throw InputError(name, fmt::format("found {}, which no training step uses; expected "
                                         "all-reduce, reduce-scatter, all-gather, all-to-all, "
                                         "broadcast or reduce",
                                         other));
  return std::nullopt;
}

/// What the file itself may leave open, and its rows show.
struct Deduced {
  std::optional<Collective> collective;
  std::optional<int> ranks;
};

/// From one result of at least 1 GB/s: below, two decimals say little.
void deduce(const element& result, double algbw, double busbw, Deduced& deduced) {
  if (algbw < 1) return;
  const double ratio = busbw / algbw;
  if (!deduced.collective) {
    const bool reduces = text_at(result, "redop") != "none" && !text_at(result, "redop").empty();
    const bool rooted = number_at(result, "root").value_or(-1) >= 0;
    if (reduces)
      deduced.collective = rooted         ? Collective::reduce
                           : ratio < 0.99 ? Collective::reduce_scatter
                                          : Collective::all_reduce;
    else
      deduced.collective = rooted ? Collective::broadcast : Collective::all_gather;
  }
  if (!deduced.ranks && ratio > 0.99) deduced.ranks = ranks_of_all_reduce(ratio);
}

/// Out of place and in place; false when size or type cannot be read.
bool add_result(const element& result, Deduced& deduced, CollectiveLog& log) {
  const auto size = number_at(result, "size");
  const auto type = dtype_of_log(text_at(result, "type"));
  if (!size || *size < 0 || *size > 1e15 || !type) return false;
  for (const char* name : {"out_of_place", "in_place"}) {
    element group;
    if (result[name].get(group) != simdjson::SUCCESS || !group.is_object()) continue;
    const auto time = number_at(group, "time");
    const auto us = time ? time : number_at(group, "cpu_time");
    if (!us || *us <= 0 || *size == 0) continue;
    deduce(result, number_at(group, "alg_bw").value_or(0), number_at(group, "bus_bw").value_or(0),
           deduced);
    log.rows.push_back({.dtype = *type,
                        .in_place = std::string_view(name) == "in_place",
                        .bytes = static_cast<std::int64_t>(*size),
                        .seconds = *us * 1e-6});
  }
  return true;
}

bool results_were_wrong(const element& root) {
  element bounds;
  if (root["out_of_bounds"].get(bounds) != simdjson::SUCCESS) return false;
  bool okay = true;
  return text_at(bounds, "okay") == "false" ||
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

CollectiveLog read_nccl_tests_json(Input& input, const CollectiveLogOptions& options) {
  CollectiveLog log{.source = input.name(), .format = "nccl-tests JSON"};
  const PaddedText text = input.read_all();
  simdjson::dom::parser parser;
  element root;
  if (const auto error = parser.parse(text.data(), text.size(), false).get(root))
    throw InputError(log.source, fmt::format("not valid JSON: {}", simdjson::error_message(error)));
  simdjson::dom::array results;
  if (root["results"].get(results) != simdjson::SUCCESS)
    throw InputError(log.source, "expected an array \"results\" of nccl-tests, found none");
  const auto note = [&log](const std::string& what) {
    log.notes.push_back(fmt::format("{}: {}", log.source, what));
  };
  Deduced deduced{.collective = options.collective ? options.collective
                                                   : named_in(log.source, command_of(root)),
                  .ranks = devices_of(root)};
  std::size_t refused = 0;
  for (const element& result : results) refused += !add_result(result, deduced, log);
  const int ranks = settle_ranks(log.source, deduced.ranks, options.ranks);
  if (!deduced.collective) note("the file does not name its collective; taken as all-reduce");
  for (CollectiveSample& row : log.rows)
    row.collective = deduced.collective.value_or(Collective::all_reduce), row.ranks = ranks;
  if (results_were_wrong(root)) note("results were out of bounds: what was measured did not work");
  if (refused > 0) note(fmt::format("{} results without size or type", refused));
  return log;
}

}  // namespace linerate::trace
