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
    throw InputError(input.name(),
                     fmt::format("not valid JSON: {}", simdjson::error_message(error)));
  simdjson::dom::array results;
  if (root["results"].get(results) != simdjson::SUCCESS)
    throw InputError(input.name(), "expected an array \"results\" of nccl-tests, found none");
  std::optional<Collective> collective =
      options.collective ? options.collective : named_in(input.name(), command_of(root));
  std::optional<int> told = devices_of(root);
  std::size_t refused = 0;
  for (const element& r : results) {
    const auto size = number_at(r, "size");
    const auto type = dtype_of_log(text_at(r, "type"));
    if (!size || *size < 0 || *size > 1e15 || !type) {
      ++refused;
      continue;
    }
    const char* groups[] = {"out_of_place", "in_place"};
    for (int g = 0; g < 2; ++g) {
      element group;
      if (r[groups[g]].get(group) != simdjson::SUCCESS || !group.is_object()) continue;
      const auto us =
          number_at(group, "time") ? number_at(group, "time") : number_at(group, "cpu_time");
      if (!us || *us <= 0 || *size == 0) continue;
      const double alg = number_at(group, "alg_bw").value_or(0),
                   bus = number_at(group, "bus_bw").value_or(0);
      if (!collective && alg >= 1) {
        const bool reduces = text_at(r, "redop") != "none" && !text_at(r, "redop").empty();
        const bool rooted = number_at(r, "root").value_or(-1) >= 0;
        collective = reduces ? (rooted             ? Collective::reduce
                                : bus / alg < 0.99 ? Collective::reduce_scatter
                                                   : Collective::all_reduce)
                             : (rooted ? Collective::broadcast : Collective::all_gather);
      }
      if (!told && alg >= 1 && bus / alg > 0.99) told = ranks_of_all_reduce(bus / alg);
      log.rows.push_back({.dtype = *type,
                          .in_place = g == 1,
                          .bytes = static_cast<std::int64_t>(*size),
                          .seconds = *us * 1e-6});
    }
  }
  const int ranks = settle_ranks(input.name(), told, options.ranks);
  if (!collective)
    log.notes.push_back(fmt::format(
        "{}: the file does not name its collective; taken as all-reduce", input.name()));
  for (CollectiveSample& row : log.rows)
    row.collective = collective.value_or(Collective::all_reduce), row.ranks = ranks;
  if (element bounds; root["out_of_bounds"].get(bounds) == simdjson::SUCCESS)
    if (bool okay = true; text_at(bounds, "okay") == "false" ||
                          (bounds["okay"].get(okay) == simdjson::SUCCESS && !okay))
      log.notes.push_back(fmt::format(
          "{}: results were out of bounds: what was measured did not work", input.name()));
  if (refused > 0)
    log.notes.push_back(fmt::format("{}: {} results without size or type", input.name(), refused));
  return log;
}

}  // namespace linerate::trace
