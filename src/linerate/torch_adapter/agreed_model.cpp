#include "linerate/torch_adapter/agreed_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <unordered_set>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/doc/validate.hpp"
#include "linerate/torch_adapter/buffer.hpp"
#include "linerate/torch_adapter/state_check.hpp"

namespace linerate::torch_adapter {

// Lists a model's parameters and buffers, and finds what cannot be exchanged, with the way out in
// the message. DataParallel asks at its construction and whenever the model has changed. Tensors
// that modules share are listed once. Ranks compare the lines of describe() before the first
// exchange, so names, types, sizes and strides must agree.

namespace {

/// Why this tensor's bytes cannot travel from this device; empty when they can.
std::string untransportable(const at::Tensor& tensor, c10::Device from,
                            bool exchanges_device_memory) {
  if (!tensor.defined()) return "is undefined; register it after its creation";
  if (tensor.layout() != at::kStrided)
    return fmt::format("has layout {}; only dense (strided) tensors are exchanged",
                       c10::str(tensor.layout()));
  if (!tensor.is_cpu() && (!exchanges_device_memory || tensor.is_meta()))
    return fmt::format(
        "lies on {}; move the model to the CPU, or give the process group that moves its memory as "
        "device_group",
        tensor.device().str());
  if (tensor.device() != from)
    return fmt::format("lies on {}, and others on {}; move the model to one device",
                       tensor.device().str(), from.str());
  if (!tensor.is_non_overlapping_and_dense())
    return fmt::format("has strides [{}] that overlap or leave gaps; assign a contiguous copy",
                       fmt::join(tensor.strides(), ", "));
  return "";
}

/// Why some tensor cannot be exchanged, as a sentence; empty if all can. All of them may lie on a
/// device only if a process group moves device memory.
std::string unsupported(const NamedTensors& parameters, const NamedTensors& buffers,
                        bool exchanges_device_memory) {
  const auto first = std::ranges::find_if(
      parameters, [](const at::Tensor& tensor) { return tensor.defined(); },
      &NamedTensors::value_type::second);
  const c10::Device from = first == parameters.end() ? c10::kCPU : first->second.device();
  for (const auto& [name, tensor] : parameters) {
    if (const std::string why = untransportable(tensor, from, exchanges_device_memory);
        !why.empty())
      return fmt::format("parameter \"{}\" {}", name, why);
    const auto type = dtype_of(tensor.scalar_type());
    if (tensor.requires_grad() && !(type && is_floating(*type)))
      return fmt::format(
          "parameter \"{}\" has type {}, expected float, double, half or bfloat16; convert it",
          name, c10::toString(tensor.scalar_type()));
    if (tensor.requires_grad() && !tensor.is_leaf())
      return fmt::format(
          "parameter \"{}\" is not a leaf, because it is computed from other tensors; register the "
          "tensors that it is computed from",
          name);
  }
  for (const auto& [name, tensor] : buffers)
    if (const std::string why = untransportable(tensor, from, exchanges_device_memory);
        !why.empty())
      return fmt::format("buffer \"{}\" {}", name, why);
  return "";
}

/// `parameters` and `buffers` must be supported. A tensor that appears twice counts by its first
/// name.
ModelState collect(const NamedTensors& parameters, const NamedTensors& buffers) {
  ModelState state;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& [name, tensor] : parameters) {
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (tensor.requires_grad()) {
      state.trained.push_back({name, tensor, *dtype_of(tensor.scalar_type()), tensor.sizes().vec(),
                               tensor.strides().vec()});
    } else {
      state.frozen.emplace_back(name, tensor);
    }
  }
  for (const auto& [name, tensor] : buffers)
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) state.buffers.emplace_back(name, tensor);
  return state;
}

/// One line a tensor: everything that must be the same on every rank.
std::vector<std::string> describe(const NamedTensors& parameters, const NamedTensors& buffers) {
  std::vector<std::string> lines;
  const auto add = [&lines](std::string_view what, const std::string& name, const at::Tensor& t) {
    lines.push_back(fmt::format("{} {} {} [{}] strides [{}]{}{}", what, name,
                                c10::toString(t.scalar_type()), fmt::join(t.sizes(), ", "),
                                fmt::join(t.strides(), ", "),
                                t.requires_grad() ? " requires_grad" : "",
                                t.is_cpu() ? "" : " on " + c10::DeviceTypeName(t.device().type())));
  };
  for (const auto& [name, tensor] : parameters) add("parameter", name, tensor);
  for (const auto& [name, tensor] : buffers) add("buffer", name, tensor);
  return lines;
}

}  // namespace

std::string sparse_module(torch::nn::Module& model) {
  const auto is_sparse = [](const torch::nn::Module& module) {
    const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module);
    const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&module);
    return (embedding && embedding->options.sparse()) || (bag && bag->options.sparse());
  };
  const auto complaint = [](const std::string& name) {
    return fmt::format(
        "module \"{}\" makes sparse gradients, which are not supported; construct it without "
        "the option sparse",
        name);
  };
  if (is_sparse(model)) return complaint(model.name());
  // The list leaves out the model itself, which may live on the stack and then has no shared_ptr.
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (is_sparse(*item.value())) return complaint(item.key());
  return "";
}

ModelState agreed_model(const NamedTensors& parameters, const NamedTensors& buffers,
                        const std::string& problem, comm::Communicator& communicator,
                        const DataParallelOptions& options, const std::string& who) {
  std::string wrong =
      problem.empty() ? unsupported(parameters, buffers, !options.device_group.empty()) : problem;
  ModelState state;
  if (wrong.empty()) {
    state = collect(parameters, buffers);
    if (state.trained.empty()) wrong = "no parameter requires a gradient";
  }
  comm::require_no_problem(communicator, who, wrong);
  comm::require_success(communicator, who, [&] {
    if (options.cluster) validate(*options.cluster, who + ": option cluster");
  });
  comm::require_same(communicator, who + ": model", describe(parameters, buffers));
  comm::require_same(
      communicator, who + ": options",
      {"name " + options.name, "strategy " + options.strategy,
       fmt::format("buffers {}", static_cast<int>(options.buffers)),
       "device group " + options.device_group,
       fmt::format("measured steps {}, replan above {}, most above ddp {}", options.measured_steps,
                   options.replan_above, options.most_above_ddp),
       options.cluster ? "cluster " + to_json(*options.cluster) : "no cluster"});
  return state;
}

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

namespace {

/// In the order of DType.
constexpr std::array<c10::ScalarType, kDTypeNames.size()> kTypes = {
    at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte};

}  // namespace

c10::ScalarType scalar_type(DType type) { return kTypes.at(to_index(type)); }

std::optional<DType> dtype_of(c10::ScalarType type) {
  const auto at = std::ranges::find(kTypes, type);
  if (at == kTypes.end()) return std::nullopt;
  return static_cast<DType>(at - kTypes.begin());
}

// Ranks compare one hash of all their tensors (8 bytes each). Only if those differ do they gather
// the hashes of the single tensors and name the first that differs from rank 0's.
//
// Example of three ranks whose tensors are "fc.weight" and "fc.bias": on rank 2 the bias has
// changed. The hashes of ranks 0 and 1 agree, and that of rank 2 does not. All three gather the
// lists, and all three throw with "fc.bias", rank 0's hash and rank 2's.

namespace {

/// Of "0x<hash> <name>": a name may hold blanks.
std::string hash_in(const std::string& line) { return line.substr(0, line.find(' ')); }
std::string name_in(const std::string& line) { return line.substr(line.find(' ') + 1); }

std::string difference_in_words(const std::vector<std::vector<std::string>>& by_rank) {
  // The first place at which a rank's list differs from rank 0's.
  std::size_t tensor = by_rank[0].size(), rank = 0;
  for (std::size_t r = 1; r < by_rank.size(); ++r) {
    const auto [ours, theirs] = std::ranges::mismatch(by_rank[0], by_rank[r]);
    const auto at = to_index(ours - by_rank[0].begin());
    const bool differs = ours != by_rank[0].end() || theirs != by_rank[r].end();
    if (differs && (rank == 0 || at < tensor)) tensor = at, rank = r;
  }
  const auto &ours = by_rank[0], &theirs = by_rank[rank];
  if (tensor >= ours.size() || tensor >= theirs.size() ||
      name_in(ours[tensor]) != name_in(theirs[tensor])) {
    const auto said = [tensor](const std::vector<std::string>& lines) {
      return tensor < lines.size() ? "\"" + name_in(lines[tensor]) + "\""
                                   : fmt::format("none ({} tensors)", lines.size());
    };
    return fmt::format(
        "ranks list different tensors: as number {} rank 0 has {}, rank {} has {}; build the same "
        "model and optimizer on every rank",
        tensor, said(ours), rank, said(theirs));
  }
  return fmt::format(
      "ranks differ in \"{}\": rank 0 has {}, rank {} has {}. Something changed it on one rank "
      "alone; go back to a checkpoint that all ranks share, and make every rank do the same "
      "between finish() and the next step",
      name_in(ours[tensor]), hash_in(ours[tensor]), rank, hash_in(theirs[tensor]));
}

}  // namespace

std::uint64_t hash_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return kHashStart;
  std::uint64_t hash = hash_bytes(c10::toString(tensor.scalar_type()));
  hash = hash_value(static_cast<std::uint64_t>(tensor.dim()), hash);
  for (const std::int64_t n : tensor.sizes())
    hash = hash_value(static_cast<std::uint64_t>(n), hash);
  const at::Tensor flat = tensor.detach().cpu().contiguous();
  return hash_words({static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()}, hash);
}

void require_same_tensors(comm::Communicator& communicator, const std::string& what,
                          const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors)
    text += fmt::format("0x{:016x} {}\n", hash_of(tensor), name);
  auto mine = static_cast<std::int64_t>(hash_bytes(text));
  std::vector<std::int64_t> hashes(to_index(communicator.size()));
  communicator.all_gather(comm::buffer(mine), comm::buffer(hashes), what + ": hash")->wait();
  if (std::ranges::count(hashes, hashes[0]) == communicator.size()) return;
  // Every rank saw the same hashes, so every rank comes here.
  std::vector<std::vector<std::string>> by_rank;
  for (const std::string& list : comm::gather_texts(communicator, text, what + ": hashes")) {
    std::istringstream in(list);
    by_rank.emplace_back();
    for (std::string line; std::getline(in, line);) by_rank.back().push_back(line);
  }
  throw on_every_rank(CommError(what + ": " + difference_in_words(by_rank)));
}

namespace {

[[noreturn]] void refuse(const std::string& expected, const std::string& found,
                         const std::string& next) {
  throw UsageError(
      fmt::format("buffer of a tensor: expected {}, found {}; {}", expected, found, next));
}

/// The element type of a tensor whose memory may travel as it is.
DType checked_type(const at::Tensor& t) {
  if (!t.defined()) refuse("a tensor", "an undefined one", "create it first");
  if (t.layout() != at::kStrided)
    refuse("a dense tensor", fmt::format("layout {}", c10::str(t.layout())), "pass to_dense()");
  if (!t.device().is_cpu())
    refuse("a tensor on the CPU", fmt::format("one on {}", t.device().str()),
           "pass cpu(): collectives move host memory");
  if (!t.is_contiguous() || t.is_neg() || t.is_conj())
    refuse("contiguous memory",
           t.is_contiguous()
               ? std::string("a tensor that is negated lazily")
               : fmt::format("sizes [{}] with strides [{}]", fmt::join(t.sizes(), ", "),
                             fmt::join(t.strides(), ", ")),
           "pass resolve_neg().contiguous(), and copy back what arrived in it");
  const std::optional<DType> type = dtype_of(t.scalar_type());
  if (!type)
    refuse("float, double, half, bfloat16, int, long or byte", c10::toString(t.scalar_type()),
           "convert it with to()");
  return *type;
}

}  // namespace

comm::Buffer buffer(at::Tensor& tensor) {
  const DType type = checked_type(tensor);
  return {tensor.data_ptr(), {tensor.numel()}, type};
}

comm::ConstBuffer buffer(const at::Tensor& tensor) {
  const DType type = checked_type(tensor);
  return {tensor.const_data_ptr(), {tensor.numel()}, type};
}

}  // namespace linerate::torch_adapter
