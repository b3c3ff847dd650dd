// What the names of events mean, through every era of PyTorch, NCCL and RCCL.
#include "linerate/trace/job/collective_names.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/input/input_file.hpp"

namespace linerate::trace {
namespace {

/// Lower case without the marks that differ between spellings.
std::string plain_name(std::string_view name) {
  std::string key;
  for (const char c : lowered(name))
    if (c != '_' && c != '-' && c != ' ') key += c;
  return key;
}

}  // namespace

bool is_no_communication(std::string_view collective_name) {
  const std::string key = plain_name(collective_name);
  return key == "wait" || key == "init";
}

/// Spellings of one operation differ in case, underscores and blanks only, so these are removed
/// before the name is looked up.
CommOp op_of_collective_name(std::string_view name) {
  std::string key = plain_name(name);
  // "nccl:send 0->1" names its ranks after the operation
  if (const std::size_t digit = key.find_first_of("0123456789"); digit != std::string::npos)
    key.resize(digit);
  struct Line {
    CommOp op;
    std::array<std::string_view, 6> names;
  };
  static constexpr std::array kNames = {
      Line{CommOp::all_reduce, {"allreduce", "allreducecoalesced", "allreducesparse"}},
      Line{CommOp::broadcast, {"broadcast", "broadcastoop", "bcast"}},
      Line{CommOp::reduce, {"reduce", "reduceoop"}},
      Line{CommOp::all_gather,
           {"allgather", "allgatherbase", "allgathercoalesced", "allgatherintotensorcoalesced",
            "allgatherv"}},
      Line{
          CommOp::reduce_scatter,
          {"reducescatter", "reducescatterbase", "reducescatterv", "reducescattertensorcoalesced"}},
      Line{CommOp::all_to_all, {"alltoall", "alltoallv", "alltoallbase"}},
      Line{CommOp::gather, {"gather"}}, Line{CommOp::scatter, {"scatter"}},
      Line{CommOp::send, {"send"}}, Line{CommOp::recv, {"recv", "recvanysource"}},
      Line{CommOp::send_recv, {"sendrecv"}},
      // The inner all-reduce of a barrier has a mark, too.
      Line{CommOp::barrier, {"barrier", "allreducebarrier", "monitoredbarrier"}}};
  for (const Line& l : kNames)
    if (!key.empty() && std::ranges::find(l.names, key) != l.names.end()) return l.op;
  return CommOp::unknown;
}

namespace {

/// A part of the lower-case names of kernels that communicate, and what they do if the rest of the
/// name does not say it.
struct KernelLine {
  std::string_view part;
  CommOp op = CommOp::unknown;
};

/// A library is a line.
constexpr std::array kKernels = {
    KernelLine{"nccl"},                                     // NVIDIA, and RCCL's ncclDevKernel
    KernelLine{"rccl"},                                     // AMD
    KernelLine{"msccl"},                                    // MSCCL, MSCCL++
    KernelLine{"oneccl"},                                   // Intel
    KernelLine{"hccl"},                                     // Gaudi, Ascend
    KernelLine{"cross_device_reduce", CommOp::all_reduce},  // vLLM, SGLang, AITER
    KernelLine{"multimem_"},                                // PyTorch's symmetric memory
    KernelLine{"one_shot_all_reduce", CommOp::all_reduce},  // the same
    KernelLine{"two_shot_all_reduce", CommOp::all_reduce},  // the same
    KernelLine{"allreduce_fusion", CommOp::all_reduce},     // FlashInfer
    KernelLine{"allreducefusion", CommOp::all_reduce},      // TensorRT-LLM
    KernelLine{"oneshotallreduce", CommOp::all_reduce},     // the same
    KernelLine{"twoshotallreduce", CommOp::all_reduce},     // the same
    KernelLine{"allreduce_prototype", CommOp::all_reduce},  // QuickReduce
    KernelLine{"quickreduce", CommOp::all_reduce},          // the same
    KernelLine{"userbuffers"},                              // Transformer Engine
    KernelLine{"nvshmem"},                                  // NVSHMEM
    KernelLine{"rocshmem"},                                 // its AMD counterpart
    KernelLine{"deep_ep::", CommOp::all_to_all},            // DeepEP
};

/// Parts of names that sound like communication. A kernel of an unknown library with such a name
/// may communicate, or add two arrays for somebody who does. So it counts as computation, and a
/// note names it.
constexpr std::array<std::string_view, 16> kSounds = {
    "multimem",       "one_shot",   "two_shot",   "allreduce",  "all_reduce", "reducescatter",
    "reduce_scatter", "allgather",  "all_gather", "alltoall",   "all_to_all", "symm_mem",
    "cross_device",   "cross_rank", "lamport",    "peer_access"};

/// Operators of the host are named after what they ask for.
constexpr std::array<std::string_view, 4> kOperators = {"aten::", "c10d", "_c10d", "symm_mem::"};

/// The first whose part is in the name; null: none is.
const KernelLine* line_in(std::span<const KernelLine> lines, std::string_view lower) {
  for (const KernelLine& l : lines)
    if (lower.find(l.part) != std::string_view::npos) return &l;
  return nullptr;
}

}  // namespace

Communicates kernel_communicates(std::string_view lower) {
  if (std::ranges::any_of(kOperators, [lower](std::string_view o) { return lower.starts_with(o); }))
    return Communicates::no;
  if (line_in(kKernels, lower) != nullptr) return Communicates::yes;
  const auto is_in_name = [lower](std::string_view s) {
    return lower.find(s) != std::string_view::npos;
  };
  return std::ranges::any_of(kSounds, is_in_name) ? Communicates::maybe : Communicates::no;
}

/// A library's line may say what all of its kernels do. Otherwise the first part of the list that
/// the name contains decides.
CommOp op_of_kernel_name(std::string_view lower) {
  const KernelLine* line = line_in(kKernels, lower);
  if (line != nullptr && line->op != CommOp::unknown) return line->op;
  // The longer names first: "reducescatter" and "allreduce" contain "reduce".
  static constexpr std::array kParts = {
      KernelLine{"allreduce", CommOp::all_reduce}, KernelLine{"all_reduce", CommOp::all_reduce},
      KernelLine{"reducescatter", CommOp::reduce_scatter},
      KernelLine{"reduce_scatter", CommOp::reduce_scatter},
      KernelLine{"allgather", CommOp::all_gather}, KernelLine{"all_gather", CommOp::all_gather},
      KernelLine{"alltoall", CommOp::all_to_all}, KernelLine{"all_to_all", CommOp::all_to_all},
      KernelLine{"sendrecv", CommOp::send_recv}, KernelLine{"broadcast", CommOp::broadcast},
      // Of Intel's all-reduce, too, a kernel is named after the sum.
      KernelLine{"oneccl_reduce", CommOp::unknown}, KernelLine{"reduce", CommOp::reduce}};
  line = line_in(kParts, lower);
  return line == nullptr ? CommOp::unknown : line->op;
}

/// Types are written as PyTorch's ScalarType ("BFloat16"), as C++ ("c10::BFloat16", "long int") or
/// as dtypes.
std::optional<ElementType> element_type_of(std::string_view type) {
  const std::string low = lowered(type);
  struct Line {
    ElementType type;
    std::array<std::string_view, 9> names;
  };
  static constexpr std::array kTypes = {
      Line{{1, DType::u8},
           {"byte", "char", "bool", "qint8", "quint8", "bits8", "unsigned char", "signed char"}},
      Line{{1, DType::u8}, {"int8", "uint8", "bits1x8", "bits2x4", "bits4x2"}},
      Line{{2, DType::f16}, {"half", "c10::half", "short", "short int", "uint16", "bits16"}},
      Line{{2, DType::bf16}, {"bfloat16", "c10::bfloat16"}},
      Line{{4, DType::f32}, {"float", "uint32", "qint32", "unsigned int"}},
      Line{{4, DType::i32}, {"int"}},
      Line{{4, DType::f16}, {"complexhalf"}},
      Line{{8, DType::f64}, {"double"}},
      Line{{8, DType::i64}, {"long", "long int", "uint64", "complexfloat", "c10::complex<float>"}},
      Line{{16, DType::f32}, {"complexdouble", "c10::complex<double>"}}};
  // e5m2, e4m3fn, their fnuz forms and e8m0fnu; two 4-bit numbers
  if (low.find("float8_e") != std::string::npos ||
      low.find("float4_e2m1fn_x2") != std::string::npos)
    return ElementType{1, DType::u8};
  for (const Line& l : kTypes)
    if (!low.empty() && std::ranges::find(l.names, low) != l.names.end()) return l.type;
  return std::nullopt;
}

// A record of an event has only part of what is known about its group, and records of one group
// differ. A kernel has a cut list, and the operation that launched it has start and stride. Each
// record is resolved by itself first, and then by its siblings.

namespace {

constexpr int kMostRanksListed =
    1 << 20;  // more than any job has; keeps absurd sizes from taking memory

std::vector<std::int64_t> strided(std::int64_t start, std::int64_t stride, int size) {
  std::vector<std::int64_t> ranks(to_index(size));
  for (int i = 0; i < size; ++i) ranks[to_index(i)] = start + i * stride;
  return ranks;
}

/// "0..7", "0..14 by 2" or "0, 4, 6": short for the groups that jobs of thousands of ranks have.
std::string text_of(const std::vector<std::int64_t>& ranks) {
  const std::int64_t stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  bool even = stride > 0 && ranks.size() > 2;
  for (std::size_t i = 1; even && i < ranks.size(); ++i) even = ranks[i] - ranks[i - 1] == stride;
  if (even)
    return fmt::format("{}..{}{}", ranks.front(), ranks.back(),
                       stride == 1 ? "" : fmt::format(" by {}", stride));
  return fmt::format("{}", fmt::join(ranks, ", "));
}

bool plausible(int size) { return size > 0 && size <= kMostRanksListed; }

std::vector<std::int64_t> ranks_of(const GroupRecord& g,
                                   const std::vector<ConfiguredGroup>& configured, int world_size) {
  if (g.start >= 0 && g.start <= kMostRanksListed && g.stride > 0 && g.stride <= kMostRanksListed &&
      plausible(g.size))
    return strided(g.start, g.stride, g.size);
  if (const auto list = parse_number_list(g.ranks); list && !list->cut && !list->items.empty())
    return list->items;
  for (const ConfiguredGroup& c : configured)
    if (c.name == g.name && (g.size < 0 || c.size < 0 || c.size == g.size)) {
      if (!c.ranks.empty()) return c.ranks;
      if (plausible(c.size) && c.size == world_size) return strided(0, 1, c.size);
    }
  if (plausible(g.size) && g.size == world_size) return strided(0, 1, g.size);
  return {};
}

}  // namespace

/// "..." marks a cut and is no item. Anything else that is no number makes the text no list.
std::optional<NumberList> parse_number_list(std::string_view text) {
  text = unquoted(text);
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  NumberList list;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    while (!item.empty() && (item.front() == ' ' || item.front() == '\n')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\n')) item.remove_suffix(1);
    if (item.starts_with("...")) {
      list.cut = true;
    } else if (const auto n = parse_whole(item)) {
      list.items.push_back(*n);
    } else if (!item.empty()) {
      return std::nullopt;
    }
  }
  return list;
}

std::vector<ConfiguredGroup> parse_configured_groups(std::string_view json) {
  std::vector<ConfiguredGroup> groups;
  if (json.empty()) return groups;
  const PaddedText text(json);
  simdjson::dom::parser parser;
  simdjson::dom::array list;
  if (parser.parse(text.data(), text.size(), false).get_array().get(list)) return groups;
  for (const simdjson::dom::element& e : list) {
    ConfiguredGroup g;
    simdjson::dom::element name;
    if (e["pg_name"].get(name) && e["uid"].get(name)) continue;
    std::string_view word;
    g.name = name.get(word) == simdjson::SUCCESS ? std::string(word) : simdjson::minify(name);
    std::int64_t size = -1;
    if (!e["pg_size"].get(size) && size <= kMostRanksListed) g.size = static_cast<int>(size);
    simdjson::dom::element ranks;
    if (!e["ranks"].get(ranks)) {
      // An array, but text from the on-demand writer; both may be cut.
      const std::string written =
          ranks.get(word) == simdjson::SUCCESS ? std::string(word) : simdjson::minify(ranks);
      if (auto numbers = parse_number_list(written);
          numbers && !numbers->cut && (g.size < 0 || numbers->items.size() == std::size_t(g.size)))
        g.ranks = std::move(numbers->items);
    }
    groups.push_back(std::move(g));
  }
  return groups;
}

std::vector<ResolvedGroup> resolve_groups(const std::vector<GroupRecord>& records,
                                          const std::vector<ConfiguredGroup>& configured,
                                          int world_size) {
  std::vector<ResolvedGroup> groups(records.size());
  for (std::size_t i = 0; i < records.size(); ++i)
    groups[i].ranks = ranks_of(records[i], configured, world_size);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const GroupRecord& g = records[i];
    // A kernel has the cut list only; start and stride are on the operation that launched it.
    for (std::size_t k = 0; groups[i].ranks.empty() && k < records.size(); ++k)
      if (records[k].start >= 0 && records[k].name == g.name && records[k].size == g.size &&
          records[k].ranks == g.ranks)
        groups[i].ranks = groups[k].ranks;
    if (!groups[i].ranks.empty())
      groups[i].text = fmt::format("{} (ranks {})", g.name, text_of(groups[i].ranks));
    else
      groups[i].text = fmt::format("{} ({} ranks{})", g.name,
                                   g.size > 0 ? std::to_string(g.size) : "an unknown number of",
                                   g.ranks.empty() ? "" : ", cut list " + g.ranks);
  }
  return groups;
}

int rank_in_name(std::string_view path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string name = lowered(slash == std::string_view::npos ? path : path.substr(slash + 1));
  for (const std::string_view word : {"rank", "worker"})
    for (std::size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
      std::size_t i = at + word.size();
      if (i < name.size() && (name[i] == '-' || name[i] == '_' || name[i] == '=' || name[i] == '.'))
        ++i;
      std::size_t end = i;
      while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
      if (end > i && end - i < 8)
        return static_cast<int>(*parse_whole(std::string_view(name).substr(i, end - i)));
    }
  return -1;
}

}  // namespace linerate::trace
