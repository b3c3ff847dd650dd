#include "linerate/trace/host_trace/host_trace.hpp"
#include "linerate/trace/job/rank_in_name.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <optional>

#include "linerate/core/error.hpp"
#include "linerate/trace/input/json_repair.hpp"
#include "linerate/trace/job/collective_names.hpp"

namespace linerate::trace {
namespace {

namespace dom = simdjson::dom;

std::optional<std::int64_t> whole(const dom::element& e) {
  if (std::int64_t n = 0; e.get(n) == simdjson::SUCCESS) return n;
  return std::nullopt;
}
std::optional<std::int64_t> whole(const simdjson::simdjson_result<dom::element>& e) {
  if (std::int64_t n = 0; e.get(n) == simdjson::SUCCESS) return n;
  return std::nullopt;
}

std::string_view text_of(const dom::element& e) {
  std::string_view s;
  return e.get(s) == simdjson::SUCCESS ? s : std::string_view();
}
std::string_view text_of(const simdjson::simdjson_result<dom::element>& e) {
  std::string_view s;
  return e.get(s) == simdjson::SUCCESS ? s : std::string_view();
}

constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

int small_number(std::optional<std::int64_t> n) {
  return n && *n >= 0 && *n <= (1 << 20) ? static_cast<int>(*n) : -1;
}

/// Attributes of the newer schemas: [{name, type, value}]. False when they name no collective.
bool read_attributes(const dom::element& node, HostCollective& c) {
  dom::array list;
  if (node["attrs"].get(list) != simdjson::SUCCESS) return false;
  bool named = false;
  for (const dom::element& attr : list) {
    const std::string_view name = text_of(attr["name"]);
    const auto value = attr["value"];
    if (name == "collective_name") {
      c.args.op = op_of_collective_name(text_of(value));
      c.args.ignored = is_no_communication(text_of(value));
      named = !text_of(value).empty();
    } else if (name == "dtype") {
      c.args.element_bytes = element_bytes_of(text_of(value));
    } else if (name == "in_msg_nelems") {
      c.args.in_elements = whole(value).value_or(-1);
    } else if (name == "out_msg_nelems") {
      c.args.out_elements = whole(value).value_or(-1);
    } else if (name == "pg_size") {
      c.args.group_size = c.group.size = small_number(whole(value));
    } else if (name == "pg_name") {
      c.group.name = text_of(value);
    } else if (name == "global_rank_start") {
      c.group.start = whole(value).value_or(-1);
    } else if (name == "global_rank_stride") {
      c.group.stride = whole(value).value_or(-1);
    } else if (name == "rf_id") {
      c.record_function = static_cast<std::uint64_t>(whole(value).value_or(0));
    }
  }
  return named;
}

/// Tensors are tuples [tensor_id, storage_id, offset, elements, element_bytes, device]; lists of
/// them nest.
std::int64_t tensor_bytes(const dom::element& value, int depth = 0) {
  dom::array list;
  if (depth > 4 || value.get(list) != simdjson::SUCCESS) return 0;
  std::string_view device;
  if (list.size() == 6 && list.at(5).get(device) == simdjson::SUCCESS) {
    const std::int64_t n = whole(list.at(3)).value_or(0), size = whole(list.at(4)).value_or(0);
    return n > 0 && n < (std::int64_t{1} << 40) && size > 0 && size <= 16 ? n * size : 0;
  }
  std::int64_t sum = 0;
  for (const dom::element& e : list)
    sum = std::min<std::int64_t>(sum + tensor_bytes(e, depth + 1), std::int64_t{1} << 60);
  return sum;
}

std::optional<dom::array> list_of(const dom::element& node, const char* side) {
  dom::array list;
  if (node[side]["values"].get(list) == simdjson::SUCCESS) return list;
  if (node[side].get(list) == simdjson::SUCCESS) return list;  // 1.0.1 is flat
  return std::nullopt;
}

/// 1.0.2 and 1.0.1 give positional inputs [tensors, seq, [pg, desc], rank, "allreduce", in_split,
/// out_split, start, stride, world]; 1.0.1 may lack the group. Sizes are bytes.
void read_positional(const dom::element& node, HostCollective& c, int& rank) {
  const auto list = list_of(node, "inputs");
  if (!list || list->size() == 0) return;
  std::vector<dom::element> inputs;
  for (const dom::element& e : *list) inputs.push_back(e);
  std::size_t named = 0;
  for (std::size_t i = 0; i < inputs.size() && named == 0; ++i) {
    const std::string_view word = text_of(inputs[i]);
    if (word.empty()) continue;
    c.args.op = op_of_collective_name(word);
    c.args.ignored = is_no_communication(word);
    if (c.args.op != CommOp::unknown || c.args.ignored) named = i;
  }
  c.args.element_bytes = 1;
  // No tensor among the inputs: unknown, not empty.
  if (const std::int64_t n = tensor_bytes(inputs[0]); n > 0) c.args.in_elements = n;
  if (const auto outputs = list_of(node, "outputs")) {
    std::int64_t n = 0;
    for (const dom::element& e : *outputs) n = std::min(n + tensor_bytes(e), std::int64_t{1} << 60);
    if (n > 0) c.args.out_elements = n;
  }
  if (named == 0) return;
  rank = std::max(rank, small_number(whole(inputs[named - 1])));
  if (dom::array group; named >= 2 && inputs[named - 2].get(group) == simdjson::SUCCESS)
    c.group.name = text_of(group.at(0));
  if (named + 5 >= inputs.size()) return;
  c.group.start = whole(inputs[named + 3]).value_or(-1);
  c.group.stride = whole(inputs[named + 4]).value_or(-1);
  c.args.group_size = c.group.size = small_number(whole(inputs[named + 5]));
}

HostCollective collective_of(const dom::element& node, int& rank) {
  HostCollective c;
  if (!read_attributes(node, c)) read_positional(node, c, rank);
  for (std::int64_t* n : {&c.args.in_elements, &c.args.out_elements})
    if (*n > kMostElements) *n = -1;
  if (c.record_function == 0)
    c.record_function = static_cast<std::uint64_t>(whole(node["rf_id"]).value_or(0));
  return c;
}

}  // namespace

HostTrace read_host_trace(PaddedText text, const std::string& name) {
  dom::parser parser;
  dom::element root;
  HostTrace trace;
  trace.source = name;
  if (parser.parse(text.data(), text.size(), false).get(root) != simdjson::SUCCESS) {
    const Repairs repairs = repair_json(text);
    if (const auto e = parser.parse(text.data(), text.size(), false).get(root))
      throw InputError(name,
                       fmt::format("not a host execution trace: {}", simdjson::error_message(e)));
    trace.notes.push_back(fmt::format("{}: damaged JSON was mended: {}", name, repairs.text()));
  }
  dom::array nodes;
  if (root["nodes"].get(nodes) != simdjson::SUCCESS)
    throw InputError(name,
                     "expected an array \"nodes\" of a PyTorch host execution trace, found none");
  int stated_rank = -1;
  for (const dom::element& node : nodes)
    if (text_of(node["name"]) == "record_param_comms") {
      trace.collectives.push_back(collective_of(node, stated_rank));
      trace.world_size = std::max(trace.world_size, trace.collectives.back().args.group_size);
    }
  trace.rank = rank_in_name(name);
  if (trace.rank < 0) trace.rank = stated_rank;
  return trace;
}

namespace {

/// Without times: what was sent, and in which order.
Communication communication_of(const HostCollective& c, std::size_t issued, Job& job) {
  Communication out{.op = c.args.op,
                    .group_size = c.args.group_size,
                    .bytes = bytes_of(c.args),
                    .issued = static_cast<std::int64_t>(issued),
                    .dtype = c.args.dtype};
  if (!c.group.name.empty()) out.group = group_index(job, c.group.name);
  return out;
}

}  // namespace

Job job_of(const std::vector<HostTrace>& traces) {
  Job job;
  job.has_durations = false;
  for (const HostTrace& t : traces) {
    RankActivity rank;
    rank.rank = t.rank;
    rank.source = t.source;
    std::size_t unsized = 0;
    for (const HostCollective& c : t.collectives) {
      if (c.args.ignored) continue;
      rank.communications.push_back(communication_of(c, rank.communications.size(), job));
      unsized += rank.communications.back().bytes < 0;
    }
    job.world_size = std::max(job.world_size, t.world_size);
    job.notes.insert(job.notes.end(), t.notes.begin(), t.notes.end());
    job.notes.push_back(
        fmt::format("{}: a host execution trace has no durations: times, overlap and the verdict "
                    "need the Kineto trace of the same run ({} collectives found)",
                    t.source, rank.communications.size()));
    if (unsized > 0)
      job.notes.push_back(
          fmt::format("{}: {} collectives without a readable size", t.source, unsized));
    job.ranks.push_back(std::move(rank));
  }
  return job;
}

}  // namespace linerate::trace
