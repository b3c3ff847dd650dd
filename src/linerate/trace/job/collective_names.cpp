// What the names of events mean, through every era of PyTorch, NCCL and RCCL.
#include <algorithm>
#include <cstring>

#include "linerate/trace/input/decimal.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {
namespace {

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

/// Lower case without the marks that differ between spellings.
std::string plain_name(std::string_view name) {
  std::string key;
  for (const char c : lowered(name))
    if (c != '_' && c != '-' && c != ' ') key += c;
  return key;
}

bool contains_any(const std::string& text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&text](std::string_view w) { return text.find(w) != std::string::npos; });
}

std::uint64_t sampled_hash(std::string_view s) {
  // Kernel names reach kilobytes and differ at both ends; equality is checked in full.
  const std::size_t n = std::min<std::size_t>(s.size(), 24);
  std::uint64_t h = s.size() * 0x9e3779b97f4a7c15ull;
  const auto mix = [&h](const char* p, std::size_t count) {
    while (count > 0) {
      std::uint64_t word = 0;
      const std::size_t k = std::min<std::size_t>(count, 8);
      std::memcpy(&word, p, k);
      h = (h ^ word) * 0xbf58476d1ce4e5b9ull;
      h ^= h >> 29;
      p += k;
      count -= k;
    }
  };
  mix(s.data(), n);
  mix(s.data() + s.size() - n, n);
  return h;
}

NameInfo describe(std::string_view raw) {
  NameInfo info;
  info.text = raw;
  if (raw.starts_with("ProfilerStep#")) {
    const auto n = parse_whole(raw.substr(13));
    info.kind = n ? NameKind::step : NameKind::plain;
    info.step = n.value_or(-1);
    return info;
  }
  if (raw.starts_with("DistributedDataParallel.forward")) return info.kind = NameKind::ddp, info;
  if (raw == "record_param_comms") return info.kind = NameKind::param_comms, info;
  if (raw == "torch::autograd::AccumulateGrad") return info.kind = NameKind::accumulate_grad, info;
  if (raw.starts_with("autograd::engine::evaluate_function"))
    return info.kind = NameKind::evaluate, info;
  if (raw.starts_with("c10d::")) return info.kind = NameKind::c10d, info;
  const std::string low = lowered(raw);
  // "nccl:all_reduce", "gloo:all_reduce", "xccl:...", "mpi:..."; "nccl::..." is a kernel
  const std::size_t colon = low.find(':');
  if (colon != std::string::npos && colon > 0 && colon < 12 && low.find_first_of(" (<") > colon &&
      (colon + 1 == low.size() || low[colon + 1] != ':') &&
      (low.substr(0, colon).ends_with("ccl") || low.starts_with("gloo:") ||
       low.starts_with("mpi:") || low.starts_with("ucc:"))) {
    info.kind = NameKind::comm_mark;
    info.op = op_of_collective_name(low.substr(colon + 1));
    info.host_backend = low.starts_with("gloo:") || low.starts_with("mpi:");
    return info;
  }
  if (contains_any(low, {"nccl", "rccl"}) || low.find("msccl") != std::string::npos) {
    info.kind = NameKind::communication_kernel;
    info.op = op_of_kernel_name(low);
  } else {
    info.suspicious = contains_any(
        low, {"multimem", "one_shot", "two_shot", "allreduce", "all_reduce", "reducescatter",
              "reduce_scatter", "allgather", "all_gather", "alltoall", "all_to_all"});
  }
  return info;
}

}  // namespace

bool is_no_communication(std::string_view collective_name) {
  const std::string key = plain_name(collective_name);
  return key == "wait" || key == "init";
}

CommOp op_of_collective_name(std::string_view name) {
  std::string key = plain_name(name);
  // "nccl:send 0->1" names its ranks behind the operation
  if (const std::size_t digit = key.find_first_of("0123456789"); digit != std::string::npos)
    key.resize(digit);
  struct Line {
    std::string_view name;
    CommOp op;
  };
  static constexpr std::array kNames = {
      Line{"allreduce", CommOp::all_reduce},
      Line{"allreducecoalesced", CommOp::all_reduce},
      Line{"allreducesparse", CommOp::all_reduce},
      Line{"broadcast", CommOp::broadcast},
      Line{"broadcastoop", CommOp::broadcast},
      Line{"bcast", CommOp::broadcast},
      Line{"reduce", CommOp::reduce},
      Line{"reduceoop", CommOp::reduce},
      Line{"allgather", CommOp::all_gather},
      Line{"allgatherbase", CommOp::all_gather},
      Line{"allgathercoalesced", CommOp::all_gather},
      Line{"allgatherintotensorcoalesced", CommOp::all_gather},
      Line{"allgatherv", CommOp::all_gather},
      Line{"reducescatter", CommOp::reduce_scatter},
      Line{"reducescatterbase", CommOp::reduce_scatter},
      Line{"reducescatterv", CommOp::reduce_scatter},
      Line{"reducescattertensorcoalesced", CommOp::reduce_scatter},
      Line{"alltoall", CommOp::all_to_all},
      Line{"alltoallv", CommOp::all_to_all},
      Line{"alltoallbase", CommOp::all_to_all},
      Line{"gather", CommOp::gather},
      Line{"scatter", CommOp::scatter},
      Line{"send", CommOp::send},
      Line{"recv", CommOp::recv},
      Line{"recvanysource", CommOp::recv},
      Line{"sendrecv", CommOp::send_recv},
      Line{"barrier", CommOp::barrier},
      Line{"allreducebarrier", CommOp::barrier},  // the mark of a barrier's inner all-reduce
      Line{"monitoredbarrier", CommOp::barrier}};
  for (const Line& l : kNames)
    if (l.name == key) return l.op;
  return CommOp::unknown;
}

CommOp op_of_kernel_name(std::string_view lower) {
  struct Line {
    std::string_view part;
    CommOp op;
  };
  // The longer names first: "reducescatter" and "allreduce" contain "reduce".
  static constexpr std::array kParts = {
      Line{"allreduce", CommOp::all_reduce}, Line{"reducescatter", CommOp::reduce_scatter},
      Line{"allgather", CommOp::all_gather}, Line{"alltoall", CommOp::all_to_all},
      Line{"sendrecv", CommOp::send_recv},   Line{"broadcast", CommOp::broadcast},
      Line{"reduce", CommOp::reduce}};
  for (const Line& l : kParts)
    if (lower.find(l.part) != std::string_view::npos) return l.op;
  return CommOp::unknown;
}

int element_bytes_of(std::string_view type) {
  const std::string low = lowered(type);
  struct Line {
    std::string_view name;
    int bytes;
  };
  static constexpr std::array kTypes = {Line{"byte", 1},
                                        Line{"char", 1},
                                        Line{"bool", 1},
                                        Line{"qint8", 1},
                                        Line{"quint8", 1},
                                        Line{"bits8", 1},
                                        Line{"unsigned char", 1},
                                        Line{"signed char", 1},
                                        Line{"int8", 1},
                                        Line{"uint8", 1},
                                        Line{"short", 2},
                                        Line{"short int", 2},
                                        Line{"half", 2},
                                        Line{"c10::half", 2},
                                        Line{"bfloat16", 2},
                                        Line{"c10::bfloat16", 2},
                                        Line{"uint16", 2},
                                        Line{"bits16", 2},
                                        Line{"int", 4},
                                        Line{"float", 4},
                                        Line{"uint32", 4},
                                        Line{"qint32", 4},
                                        Line{"complexhalf", 4},
                                        Line{"unsigned int", 4},
                                        Line{"long", 8},
                                        Line{"long int", 8},
                                        Line{"double", 8},
                                        Line{"uint64", 8},
                                        Line{"complexfloat", 8},
                                        Line{"complexdouble", 16},
                                        Line{"c10::complex<float>", 8},
                                        Line{"c10::complex<double>", 16}};
  // e5m2, e4m3fn, their fnuz forms and e8m0fnu; two 4-bit numbers; packed bits
  if (low.find("float8_e") != std::string::npos ||
      low.find("float4_e2m1fn_x2") != std::string::npos || low == "bits1x8" || low == "bits2x4" ||
      low == "bits4x2")
    return 1;
  for (const Line& l : kTypes)
    if (l.name == low) return l.bytes;
  return -1;
}

DType dtype_of_type(std::string_view type) {
  const std::string low = lowered(type);
  if (low.find("bfloat16") != std::string::npos) return DType::bf16;
  if (low.find("half") != std::string::npos) return DType::f16;
  switch (element_bytes_of(type)) {
    case 8:
      return low == "double" ? DType::f64 : DType::i64;
    case 2:
      return DType::f16;
    case 1:
      return DType::u8;
    default:
      return low == "int" ? DType::i32 : DType::f32;
  }
}

std::int32_t NameTable::intern(std::string_view raw) {
  // Template names reach kilobytes. What is longer is damage, and not to be kept a second time.
  constexpr std::size_t kLongest = 64 * 1024;
  raw = raw.substr(0, kLongest);
  if (names_.size() * 2 >= slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = sampled_hash(raw) & mask;; at = (at + 1) & mask) {
    const std::int32_t found = slots_[at];
    if (found < 0) {
      slots_[at] = static_cast<std::int32_t>(names_.size());
      names_.push_back(describe(raw));
      return slots_[at];
    }
    if (names_[static_cast<std::size_t>(found)].text == raw) return found;
  }
}

void NameTable::grow() {
  slots_.assign(std::max<std::size_t>(1024, slots_.size() * 2), -1);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    std::size_t at = sampled_hash(names_[i].text) & mask;
    while (slots_[at] >= 0) at = (at + 1) & mask;
    slots_[at] = static_cast<std::int32_t>(i);
  }
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
