#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/trace/json_repair.hpp"
#include "linerate/trace/kineto_names.hpp"
#include "linerate/trace/other_formats.hpp"

namespace linerate::trace {
namespace {

namespace dom = simdjson::dom;

std::optional<std::int64_t> whole(const simdjson::simdjson_result<dom::element>& e) {
  if (std::int64_t n = 0; e.get(n) == simdjson::SUCCESS) return n;
  return std::nullopt;
}

std::string_view text_of(const simdjson::simdjson_result<dom::element>& e) {
  std::string_view s;
  return e.get(s) == simdjson::SUCCESS ? s : std::string_view();
}

/// Attributes of the newer schemas: [{name, type, value}].
struct Attributes {
  std::string_view collective, dtype;
  std::int64_t in = -1, out = -1, group_size = -1;
};

Attributes attributes_of(const dom::element& node) {
  Attributes a;
  dom::array list;
  if (node["attrs"].get(list) != simdjson::SUCCESS) return a;
  for (const dom::element& attr : list) {
    const std::string_view name = text_of(attr["name"]);
    const auto value = attr["value"];
    if (name == "collective_name")
      a.collective = text_of(value);
    else if (name == "dtype")
      a.dtype = text_of(value);
    else if (name == "in_msg_nelems")
      a.in = whole(value).value_or(-1);
    else if (name == "out_msg_nelems")
      a.out = whole(value).value_or(-1);
    else if (name == "pg_size")
      a.group_size = whole(value).value_or(-1);
  }
  return a;
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

/// 1.0.2 and 1.0.1 give positional inputs [tensors, seq, [pg, desc], rank, "allreduce", ..., start,
/// stride, world].
struct Positional {
  std::string_view collective;
  std::int64_t bytes = -1, group_size = -1;
};

Positional positional_of(const dom::element& node) {
  Positional p;
  dom::element values;
  if (node["inputs"]["values"].get(values) != simdjson::SUCCESS &&
      node["inputs"].get(values) != simdjson::SUCCESS)
    return p;
  dom::array list;
  if (values.get(list) != simdjson::SUCCESS || list.size() == 0) return p;
  std::size_t i = 0, named = 0;
  for (const dom::element& v : list) {
    std::string_view s;
    if (v.get(s) != simdjson::SUCCESS) s = {};
    if (p.collective.empty() && !s.empty() &&
        (op_of_collective_name(s) != CommOp::unknown || s == "wait" || s == "init"))
      p.collective = s, named = i;
    if (i == 0) p.bytes = tensor_bytes(v);
    ++i;
  }
  dom::element outputs;  // S is the larger side: an all-gather's is its output
  if (node["outputs"]["values"].get(outputs) == simdjson::SUCCESS ||
      node["outputs"].get(outputs) == simdjson::SUCCESS)
    p.bytes = std::max(p.bytes, tensor_bytes(outputs));
  if (!p.collective.empty() && named + 5 < list.size())
    p.group_size = whole(list.at(list.size() - 1)).value_or(-1);
  return p;
}

}  // namespace

Job read_host_trace(PaddedText text, const std::string& name) {
  dom::parser parser;
  dom::element root;
  Job job;
  if (parser.parse(text.data(), text.size(), false).get(root) != simdjson::SUCCESS) {
    const Repairs repairs = repair_json(text);
    if (const auto e = parser.parse(text.data(), text.size(), false).get(root))
      throw InputError(name,
                       fmt::format("not a host execution trace: {}", simdjson::error_message(e)));
    job.notes.push_back(fmt::format("{}: damaged JSON was mended: {}", name, repairs.text()));
  }
  dom::array nodes;
  if (root["nodes"].get(nodes) != simdjson::SUCCESS)
    throw InputError(name,
                     "expected an array \"nodes\" of a PyTorch host execution trace, found none");
  RankActivity rank;
  rank.rank = -1;
  rank.source = name;
  job.has_durations = false;
  std::size_t unsized = 0;
  for (const dom::element& node : nodes) {
    if (text_of(node["name"]) != "record_param_comms") continue;
    const Attributes a = attributes_of(node);
    const Positional p = a.collective.empty() ? positional_of(node) : Positional{};
    const std::string_view collective = a.collective.empty() ? p.collective : a.collective;
    if (collective == "wait" || collective == "init") continue;
    Announced c{.op = op_of_collective_name(collective)};
    const int size = element_bytes_of(a.dtype);
    const std::int64_t n = std::max(a.in, a.out);
    if (n >= 0 && n < (std::int64_t{1} << 40) && size > 0)
      c.bytes = n * size;
    else if (p.bytes > 0)
      c.bytes = p.bytes;
    unsized += c.bytes < 0;
    job.world_size =
        std::max<int>(job.world_size, static_cast<int>(std::clamp<std::int64_t>(
                                          std::max(a.group_size, p.group_size), -1, 1 << 24)));
    rank.announced.push_back(c);
  }
  job.notes.push_back(fmt::format(
      "{}: a host execution trace has no durations: times, overlap and the verdict need the Kineto "
      "trace of the same run ({} collectives found)",
      name, rank.announced.size()));
  if (unsized > 0)
    job.notes.push_back(fmt::format("{}: {} collectives without a readable size", name, unsized));
  job.ranks.push_back(std::move(rank));
  return job;
}

}  // namespace linerate::trace
