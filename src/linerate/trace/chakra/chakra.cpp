// Reads the file of one rank. The binary form is a row of protobuf messages, each after its length
// as a varint: GlobalMetadata first, then Nodes. The JSON form has the same nodes in
// "workload_graph". Both forms fill a Node, and Builder makes a rank of the nodes.
//
// A Chakra trace says how long a node takes, and not always when it began. Without any begin
// nothing can overlap, so durations are summed for a note, and all busy times stay unknown.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <any>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/importer/importer.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/collective_names.hpp"

namespace linerate::trace {
namespace {

/// One rank, before the members of its groups are known. Until join_chakra(), Communication::group
/// is an index into group_names, and the bytes of an all-gather or gather are the rank's own part.
struct ChakraTrace {
  RankActivity rank;
  std::vector<std::string> group_names;
  bool has_durations = false, has_starts = false;
  std::vector<std::string> notes;
};

/// {"1": [0, 1], ...}: ranks by pg_name.
using ChakraGroups = std::vector<ConfiguredGroup>;

/// Reads protobuf's wire format, by hand, because a trace needs a few fields only. Every read is
/// checked. After a bad one ok() is false for good, and reads give 0 or nothing, so that a caller
/// may check once at the end.
///
/// A field is a tag (number * 8 + type) and a value. Type 0 is a varint, 1 and 5 are 8 and 4 bytes,
/// 2 is a length and so many bytes.
class Wire {
 public:
  explicit Wire(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool done() const { return !ok_ || at_ >= bytes_.size(); }
  std::size_t position() const { return at_; }

  /// Seven bits a byte, the lowest first; a set eighth bit says that more follow. 300 is ac 02.
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ >= bytes_.size()) break;
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    ok_ = false;
    return 0;
  }
  /// A length and so many bytes, as a view into the text.
  std::string_view block() {
    const std::uint64_t n = varint();
    if (!ok_ || n > bytes_.size() - at_) return ok_ = false, std::string_view();
    const std::string_view block = bytes_.substr(at_, n);
    at_ += n;
    return block;
  }
  /// Field number and wire type of the next field.
  std::pair<std::uint64_t, int> tag() {
    const std::uint64_t t = varint();
    return {t >> 3, static_cast<int>(t & 7)};
  }
  /// Little-endian, 4 or 8 bytes.
  std::uint64_t fixed(int width) {
    std::uint64_t value = 0;
    if (to_index(width) > bytes_.size() - at_) return ok_ = false, 0;
    for (int i = 0; i < width; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[at_ + std::size_t(i)]))
               << (8 * i);
    at_ += to_index(width);
    return value;
  }
  void skip(int type) {
    if (type == 0)
      varint();
    else if (type == 2)
      block();
    else if (type == 1 || type == 5)
      fixed(type == 1 ? 8 : 4);
    else
      ok_ = false;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

enum NodeType : std::uint64_t { kComp = 4, kSend = 5, kRecv = 6, kCollective = 7 };

/// A node as read, of either form. Times are microseconds.
struct Node {
  std::uint64_t type = 0, start_us = 0, duration_us = 0;
  std::string_view name;
  std::string group;
  bool has_attributes = false;
  std::optional<bool> is_cpu;
  std::optional<std::int64_t> comm_type, comm_size;
};

/// AttributeProto: field 1 is the name, and one other field is the value. The number of that field
/// says the type. Integers are varints, except for sint (zig-zag: 0, -1, 1, -2 as 0, 1, 2, 3) and
/// those of fixed width.
void read_attribute(std::string_view bytes, Node& node) {
  Wire w(bytes);
  std::string_view name, text;
  std::optional<std::int64_t> number;
  while (!w.done()) {
    const auto [field, type] = w.tag();
    if (field == 1 && type == 2)
      name = w.block();
    else if (field == 29 && type == 2)
      text = w.block();
    else if (type == 0 && (field == 7 || field == 9 || field == 11 || field == 13 || field == 27))
      number = static_cast<std::int64_t>(w.varint());
    else if ((type == 5 && (field == 19 || field == 23)) ||
             (type == 1 && (field == 21 || field == 25)))
      number = static_cast<std::int64_t>(w.fixed(type == 5 ? 4 : 8));
    else if (type == 0 && (field == 15 || field == 17)) {
      const std::uint64_t z = w.varint();
      number = static_cast<std::int64_t>((z >> 1) ^ (~(z & 1) + 1));
    } else
      w.skip(type);
  }
  if (name == "is_cpu_op" && number)
    node.is_cpu = *number != 0;
  else if (name == "comm_type")
    node.comm_type = number;
  else if (name == "comm_size")
    node.comm_size = number;
  else if (name == "pg_name")
    node.group = text.empty() && number ? std::to_string(*number) : std::string(text);
}

/// Field numbers of a Node in schema 0.0.4. Fields without a meaning here are passed over.
bool read_node(std::string_view bytes, Node& node) {
  Wire w(bytes);
  while (!w.done()) {
    const auto [field, type] = w.tag();
    if (field == 2 && type == 2)
      node.name = w.block();
    else if (field == 3 && type == 0)
      node.type = w.varint();
    else if (field == 6 && type == 0)
      node.start_us = w.varint();
    else if (field == 7 && type == 0)
      node.duration_us = w.varint();
    else if (field == 10 && type == 2)
      read_attribute(w.block(), node), node.has_attributes = true;
    else
      w.skip(type);
  }
  return w.ok();
}

/// The order of kOps is that of CollectiveCommType in the schema. A node without a type is known by
/// its name.
CommOp op_of(const Node& n) {
  if (n.type == kSend) return CommOp::send;
  if (n.type == kRecv) return CommOp::recv;
  static constexpr CommOp kOps[] = {
      CommOp::all_reduce,     CommOp::reduce,    CommOp::all_gather, CommOp::gather,
      CommOp::scatter,        CommOp::broadcast, CommOp::all_to_all, CommOp::reduce_scatter,
      CommOp::reduce_scatter, CommOp::barrier};
  if (n.comm_type && *n.comm_type >= 0 && *n.comm_type < std::ssize(kOps))
    return kOps[*n.comm_type];
  return op_of_kernel_name(lowered(n.name));
}

/// Collects nodes of either form into one rank.
class Builder {
 public:
  explicit Builder(const std::string& name) {
    trace_.rank.source = name;
    trace_.rank.rank = rank_of(name);
  }

  /// Adds a node as communication or as computation. Nodes of the host and nodes without a role
  /// here are only counted.
  void add(const Node& n) {
    constexpr std::uint64_t kMost = 4'000'000'000'000'000;  // us; beyond any epoch time
    if (n.start_us > kMost || n.duration_us > 86'400'000'000ull) {
      ++absurd_;
      return;
    }
    const Span span{static_cast<std::int64_t>(n.start_us) * 1000,
                    static_cast<std::int64_t>(n.start_us + n.duration_us) * 1000};
    const bool communication = n.type == kCollective || n.type == kSend || n.type == kRecv;
    // The host's c10d::* nodes are collectives too, but have no size. Counting them as well would
    // double everything.
    const bool on_device =
        n.is_cpu ? !*n.is_cpu || n.comm_size.has_value() : n.comm_size.has_value();
    with_attributes_ += n.has_attributes;
    started_ = started_ || n.start_us > 0;
    if (communication && on_device) {
      Communication c{.span = span, .op = op_of(n), .group = group_of(n.group)};
      if (n.comm_size && *n.comm_size >= 0) c.bytes = *n.comm_size;
      timed_ += n.duration_us > 0;
      trace_.rank.communications.push_back(c);
    } else if (n.type == kComp && n.is_cpu && !*n.is_cpu) {
      timed_ += n.duration_us > 0;
      trace_.rank.compute.push_back(span);
    }
    ++nodes_;
  }

  ChakraTrace finish() {
    RankActivity& rank = trace_.rank;
    sort_by_start(rank.communications);
    trace_.has_durations = timed_ > 0;
    trace_.has_starts = started_;
    if (timed_ > 0 && !started_) leave_out_times();
    if (timed_ == 0)
      add_note(trace_.notes, rank.source,
               "no node on the device has a duration, so busy times are unknown");
    if (absurd_ > 0)
      add_note(trace_.notes, rank.source, "{} nodes with absurd times left out", absurd_);
    add_note(trace_.notes, rank.source, "{} nodes; a Chakra trace marks no steps", nodes_);
    return std::move(trace_);
  }
  bool no_node_has_attributes() const { return nodes_ > 0 && with_attributes_ == 0; }

 private:
  /// Empties all spans, and notes the sums of their lengths: work that begins at no known time
  /// neither overlaps nor is exposed.
  void leave_out_times() {
    RankActivity& rank = trace_.rank;
    std::int64_t compute = 0, communication = 0;
    for (Span& s : rank.compute) compute += s.length(), s = {};
    for (Communication& c : rank.communications) {
      communication += c.span.length();
      c.span = {};
    }
    add_note(trace_.notes, rank.source,
             "no node has a start, so overlap and busy times are unknown. {} kernels take {} one "
             "after the other, {} communications {}",
             rank.compute.size(), format_time(in_seconds(compute)), rank.communications.size(),
             format_time(in_seconds(communication)));
  }

  /// "<prefix>.3.et", else as in any trace's name.
  static int rank_of(const std::string& name) {
    const std::size_t dot = name.rfind(".et");
    const std::size_t digits =
        dot == std::string::npos ? dot : name.find_last_not_of("0123456789", dot - 1);
    if (digits != std::string::npos && digits + 1 < dot && dot - digits < 9)
      return std::stoi(name.substr(digits + 1, dot - digits - 1));
    return rank_in_name(name);
  }
  std::int32_t group_of(const std::string& name) {
    if (name.empty()) return -1;
    auto& names = trace_.group_names;
    const auto at = std::ranges::find(names, name) - names.begin();
    if (at == std::ssize(names)) names.push_back(name);
    return static_cast<std::int32_t>(at);
  }

  ChakraTrace trace_;
  bool started_ = false;
  std::size_t nodes_ = 0, timed_ = 0, absurd_ = 0, with_attributes_ = 0;
};

/// The version of a GlobalMetadata message, or the "schema" among its attributes; nullopt when it
/// is no such message.
std::optional<std::string> version_of(std::string_view message) {
  Wire w(message);
  std::string version;
  std::size_t attributes = 0;
  while (!w.done()) {
    const auto [field, type] = w.tag();
    if (type != 2 || (field != 1 && field != 2)) return std::nullopt;
    const std::string_view block = w.block();
    if (field == 1) {
      version = block;
      continue;
    }
    Wire attribute(block);
    if (attribute.tag() != std::pair<std::uint64_t, int>{1, 2}) return std::nullopt;
    const std::string_view name = attribute.block();
    if (attribute.tag().first == 29 && name == "schema") version = attribute.block();
    if (!attribute.ok()) return std::nullopt;
    ++attributes;
  }
  const bool printable =
      version.find_first_not_of("0123456789.abcdefghijklmnopqrstuvwxyz-_") == std::string::npos;
  if (!w.ok() || !printable || (version.empty() && attributes == 0)) return std::nullopt;
  return version;
}

/// Not below 0; nullopt: there is none.
std::optional<std::int64_t> integer_at(const simdjson::dom::element& e, const char* key) {
  std::int64_t n = -1;
  return e[key].get(n) == simdjson::SUCCESS && n >= 0 ? std::optional(n) : std::nullopt;
}

std::string_view text_at(const simdjson::dom::element& e, const char* key) {
  std::string_view text;
  return e[key].get(text) == simdjson::SUCCESS ? text : std::string_view();
}

bool is_chakra(const Head& head) {
  Wire w(head.bytes());
  const std::string_view metadata = w.block();
  return !head.is_json() && w.ok() && !metadata.empty() && version_of(metadata).has_value();
}

/// A message that cannot be decoded is counted and passed over, since its length says where the
/// next one begins. If a length leads past the end, the file was cut.
std::any read_chakra(PaddedText text, const std::string& name, const Progress&) {
  Wire w(text.view());
  const std::string version = version_of(w.block()).value_or("");
  Builder builder(name);
  std::size_t bad = 0;
  while (!w.done()) {
    Node node;
    const std::string_view message = w.block();
    if (!w.ok()) break;
    if (read_node(message, node))
      builder.add(node);
    else
      ++bad;
  }
  if (builder.no_node_has_attributes())
    throw InputError(
        name,
        fmt::format(
            "schema \"{}\": no node has attributes (field 10), so host and device cannot be told "
            "apart; expected schema 0.0.4; convert the trace again with today's chakra_converter",
            version));
  ChakraTrace trace = builder.finish();
  if (!w.ok())
    add_note(trace.notes, name, "ends early at byte {} of {}; the nodes before that were read",
             w.position(), text.size());
  if (bad > 0) trace.notes.push_back(fmt::format("{}: {} nodes could not be decoded", name, bad));
  if (version != "0.0.4")
    add_note(trace.notes, name, "schema \"{}\"; fields were read as of 0.0.4", version);
  return trace;
}

std::any read_chakra_json(PaddedText text, const std::string& name, const Progress&) {
  simdjson::dom::parser parser;
  simdjson::dom::array nodes;
  if (parser.parse(text.data(), text.size(), false)["workload_graph"].get(nodes) !=
      simdjson::SUCCESS) {
    repair_json(text);
    if (const auto e = parser.parse(text.data(), text.size(), false)["workload_graph"].get(nodes))
      throw InputError(name, fmt::format("expected an array \"workload_graph\": {}",
                                         simdjson::error_message(e)));
  }
  Builder builder(name);
  for (const simdjson::dom::element& e : nodes) {
    if (!e.is_object()) continue;
    Node n;
    n.name = text_at(e, "Name");
    n.group = text_at(e, "pg_name");
    const auto whole = [&e](const char* key) {
      return static_cast<std::uint64_t>(integer_at(e, key).value_or(0));
    };
    n.type = whole("NodeType"), n.duration_us = whole("runtime"), n.start_us = whole("start");
    if (bool cpu = false; e["is_cpu_op"].get(cpu) == simdjson::SUCCESS)
      n.is_cpu = cpu;
    else if (const auto flag = integer_at(e, "is_cpu_op"))
      n.is_cpu = *flag != 0;
    n.comm_type = integer_at(e, "comm_type"), n.comm_size = integer_at(e, "comm_size");
    builder.add(n);
  }
  return builder.finish();
}

// The files of one Chakra job: the traces of its ranks, and its process groups.
//
// Ranks 0, 1 and 2 of group "1" each state 4 MiB of an all-gather. S of core/dtype.hpp is the
// whole array, 12 MiB. Only the file of process groups says that the group has three ranks, so
// without that file the total stays unknown.

/// The sum of input tensors per rank is one rank's part of these.
bool states_part(CommOp op) { return op == CommOp::all_gather || op == CommOp::gather; }

std::int64_t total_of(std::int64_t part, int ranks) {
  return part >= 0 && ranks > 0 && part < (std::int64_t{1} << 60) / ranks ? part * ranks : -1;
}

/// Members and totals of a rank's communications; returns how many parts stay parts.
std::size_t place(ChakraTrace& t, const ChakraGroups& known, Job& job) {
  const auto records = mapped(t.group_names, [](const std::string& name) {
    return GroupRecord{.name = name, .ranks = {}};
  });
  const std::vector<ResolvedGroup> resolved = resolve_groups(records, known, job.world_size);
  std::size_t parts = 0;
  for (Communication& c : t.rank.communications) {
    if (c.group >= 0) {
      const ResolvedGroup& g = resolved[to_index(c.group)];
      if (!g.ranks.empty()) c.group_size = static_cast<int>(g.ranks.size());
      c.group = group_index(job, g.text);
    }
    if (!states_part(c.op) || c.bytes < 0) continue;
    c.bytes = total_of(c.bytes, c.group_size);
    parts += c.bytes < 0;
  }
  return parts;
}

std::any read_chakra_groups(PaddedText text, const std::string& name, const Progress&) {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (const auto e = parser.parse(text.data(), text.size(), false).get_object().get(root))
    throw InputError(name, fmt::format("expected process groups such as {{\"1\": [0, 1]}}: {}",
                                       simdjson::error_message(e)));
  ChakraGroups groups;
  for (const auto& [key, value] : root) {
    simdjson::dom::array list;
    std::vector<std::int64_t> ranks;
    bool whole = value.get(list) == simdjson::SUCCESS;
    if (whole)
      for (const simdjson::dom::element& e : list) {
        std::int64_t rank = -1;
        whole = whole && e.get(rank) == simdjson::SUCCESS && rank >= 0 && rank < (1 << 20);
        ranks.push_back(rank);
      }
    if (!whole)
      throw InputError(name, fmt::format("/{}: expected a list of ranks, found {}", key,
                                         simdjson::minify(value).substr(0, 60)));
    const auto size = static_cast<int>(ranks.size());
    groups.push_back({.name = std::string(key), .size = size, .ranks = std::move(ranks)});
  }
  return groups;
}

Job join_chakra(std::vector<ChakraTrace> traces, const ChakraGroups& groups) {
  Job job;
  job.has_durations = false;
  bool unknown = false;  // of a rank, when anything began
  for (const ConfiguredGroup& group : groups)
    for (const std::int64_t r : group.ranks)
      job.world_size = std::max(job.world_size, static_cast<int>(r) + 1);
  for (ChakraTrace& t : traces) {
    job.has_durations = job.has_durations || t.has_durations;
    unknown = unknown || (t.has_durations && !t.has_starts);
    job.notes.insert(job.notes.end(), t.notes.begin(), t.notes.end());
    if (const std::size_t parts = place(t, groups, job); parts > 0)
      add_note(job.notes, t.rank.source,
               "{} all-gathers state the part of one rank, and the group's size is in another "
               "file, so their total bytes are unknown; give the JSON of process groups too",
               parts);
    job.ranks.push_back(std::move(t.rank));
  }
  job.has_durations = job.has_durations && !unknown;
  return job;
}

constexpr std::string_view kGroupsAlone =
    "process groups of a Chakra job, not a trace; give its traces (*.et) together with it";

/// Traces and tables of groups may come in any order. Tables are merged; a job needs one trace at
/// least.
Job join_files(std::vector<FilePart> parts) {
  std::vector<ChakraTrace> traces;
  std::vector<RankOfFile> ranks;
  ChakraGroups groups;
  for (FilePart& part : parts)
    if (auto* some = std::any_cast<ChakraGroups>(&part.content)) {
      groups.insert(groups.end(), some->begin(), some->end());
    } else {
      const auto& trace = traces.emplace_back(std::any_cast<ChakraTrace>(std::move(part.content)));
      ranks.push_back({trace.rank.rank, trace.rank.source});
    }
  if (traces.empty()) throw InputError(parts.front().file, std::string(kGroupsAlone));
  require_ranks(ranks);
  return join_chakra(std::move(traces), groups);
}

/// The next character that is no blank, 0 at the end.
char next_of(std::string_view text, std::size_t& at) {
  at = text.find_first_not_of(" \t\r\n", at);
  return at == std::string_view::npos ? '\0' : text[at++];
}

/// {"1": [0, 1], ...}: process groups, given with the traces of the ranks.
bool is_group_table(const Head& head) {
  // A host execution trace may begin with an empty list too, and states its schema.
  if (head.form() != HeadForm::object || head.contains("\"schema\"")) return false;
  const std::string_view text = head.text();
  std::size_t at = 0;
  if (next_of(text, at) != '{' || next_of(text, at) != '"') return false;
  const std::size_t quote = text.find('"', at);
  if (quote == std::string_view::npos || quote - at > 64) return false;
  at = quote + 1;
  if (next_of(text, at) != ':' || next_of(text, at) != '[') return false;
  const char first = next_of(text, at);
  return (first >= '0' && first <= '9') || first == ']';
}

}  // namespace

std::vector<Importer> chakra_importers() {
  return {{.name = "Chakra execution trace",
           .matches = is_chakra,
           .read = read_chakra,
           .join = join_files},
          {.name = "Chakra JSON trace",
           .matches =
               [](const Head& head) {
                 return head.form() == HeadForm::object && head.contains("\"workload_graph\"");
               },
           .read = read_chakra_json,
           .join = join_files},
          {.name = "Chakra process groups",
           .matches = is_group_table,
           .read = read_chakra_groups,
           .join = join_files}};
}

}  // namespace linerate::trace
