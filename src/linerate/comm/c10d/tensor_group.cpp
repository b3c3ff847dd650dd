// Collectives of PyTorch's process groups, for parameters on a device. NCCL enqueues them in
// streams of its own; PyTorch's Work makes the current stream wait for them. The only difficult
// part is to split a group, because a back end's split() leaves traces in the options that it is
// given (KeptOptions).
#include "linerate/comm/c10d/tensor_group.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <malloc.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

::c10d::ReduceOp reduction(Reduce op) {
  if (op == Reduce::sum) return ::c10d::ReduceOp::SUM;
  return op == Reduce::max ? ::c10d::ReduceOp::MAX : ::c10d::ReduceOp::MIN;
}

using WorkOfGroup = c10::intrusive_ptr<::c10d::Work>;

/// LibTorch before 2.13 has only the other name; later ones warn of it.
template <typename Group>
WorkOfGroup scatter_sum(Group& group, at::Tensor& mine, at::Tensor& array,
                        const ::c10d::ReduceScatterOptions& options) {
  if constexpr (requires { group.reduce_scatter_single(mine, array, options); })
    return group.reduce_scatter_single(mine, array, options);
  else
    return group._reduce_scatter_base(mine, array, options);
}

template <typename Group>
WorkOfGroup gather_blocks(Group& group, at::Tensor& array, at::Tensor& mine,
                          const ::c10d::AllgatherOptions& options) {
  if constexpr (requires { group.all_gather_single(array, mine, options); })
    return group.all_gather_single(array, mine, options);
  else
    return group._allgather_base(array, mine, options);
}

template <typename Group>
WorkOfGroup exchange_blocks(Group& group, at::Tensor& arrived, at::Tensor& sent,
                            const ::c10d::AllToAllOptions& options) {
  std::vector<std::int64_t> equal;
  if constexpr (requires { group.all_to_all_single(arrived, sent, equal, equal, options); })
    return group.all_to_all_single(arrived, sent, equal, equal, options);
  else
    return group.alltoall_base(arrived, sent, equal, equal, options);
}

/// Restores options that a back end's split() changes, in LibTorch 2.13 and before. A second split
/// would else go by the changed options.
///
/// NCCL's options also get the group that is split (`split_from`), so that this group never ends,
/// and right after it a color. Their class is in no header of a LibTorch without CUDA. This may be
/// built with such a LibTorch and still run with NCCL. So the two are found in memory. A word of
/// the options was 0 and is now this group's address, and the group has one reference more.
class KeptOptions {
 public:
  KeptOptions(::c10d::Backend& whole, c10::intrusive_ptr<::c10d::Backend::Options> options)
      : whole_(whole),
        references_(c10::raw::intrusive_ptr::use_count(&whole)),
        options_(std::move(options)),
        before_(words()),
        timeout_(options_->timeout),
        name_(options_->group_name),
        description_(options_->group_desc),
        ranks_(options_->global_ranks_in_group) {}
  ~KeptOptions() {
    put_back_group();
    options_->timeout = timeout_;
    options_->group_name = std::move(name_);
    options_->group_desc = std::move(description_);
    options_->global_ranks_in_group = std::move(ranks_);
  }
  KeptOptions(const KeptOptions&) = delete;
  KeptOptions& operator=(const KeptOptions&) = delete;

 private:
  using Word = std::uintptr_t;
  using Group = c10::intrusive_ptr<::c10d::Backend>;
  static_assert(sizeof(Group) == sizeof(Word));

  Word* first() const { return static_cast<Word*>(dynamic_cast<void*>(options_.get())); }
  std::vector<Word> words() const {
    return {first(), first() + malloc_usable_size(first()) / sizeof(Word)};
  }
  void put_back_group() const {
    const std::vector<Word> now = words();
    for (std::size_t w = sizeof(::c10d::Backend::Options) / sizeof(Word); w < now.size(); ++w) {
      if (before_[w] != 0 || now[w] != reinterpret_cast<Word>(&whole_)) continue;
      if (c10::raw::intrusive_ptr::use_count(&whole_) <= references_) return;
      reinterpret_cast<Group*>(first() + w)->reset();
      if (w + 1 < now.size()) std::memcpy(first() + w + 1, &before_[w + 1], sizeof(int));
      return;
    }
  }

  ::c10d::Backend& whole_;
  std::size_t references_;
  c10::intrusive_ptr<::c10d::Backend::Options> options_;
  std::vector<Word> before_;
  std::chrono::milliseconds timeout_;
  std::string name_, description_;
  std::vector<std::uint64_t> ranks_;
};

/// Whether the back end's collectives are work of the host, in whatever memory. Then there is no
/// work in a stream to wait for.
bool works_on_host(::c10d::ProcessGroup& group, c10::Device device) {
  const std::string name = group.getBackend(device.type())->getBackendName();
  return device.is_cpu() || name == "gloo" || name == "mpi";
}

/// TensorGroup over a c10d::ProcessGroup. On a device the current stream waits for the group's own
/// stream, and the host waits for nothing. That holds even under TORCH_NCCL_BLOCKING_WAIT, by which
/// a Work's wait() goes.
class C10dTensorGroup final : public TensorGroup {
 public:
  C10dTensorGroup(c10::intrusive_ptr<::c10d::ProcessGroup> group, c10::Device device)
      : group_(std::move(group)), device_(device), host_waits_(works_on_host(*group_, device)) {}

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }

  void all_reduce(at::Tensor array, Reduce op, const std::string& title) override {
    run(title, [&] {
      ::c10d::AllreduceOptions options;
      options.reduceOp = reduction(op);
      std::vector<at::Tensor> arrays{std::move(array)};
      return group_->allreduce(arrays, options);
    });
  }
  void reduce_scatter(at::Tensor array, Reduce op, const std::string& title) override {
    run(title, [&] {
      ::c10d::ReduceScatterOptions options;
      options.reduceOp = reduction(op);
      at::Tensor mine = block_of(array);
      return scatter_sum(*group_, mine, array, options);
    });
  }
  void all_gather(at::Tensor array, const std::string& title) override {
    run(title, [&] {
      at::Tensor mine = block_of(array);
      return gather_blocks(*group_, array, mine, {});
    });
  }
  void all_to_all(at::Tensor sent, at::Tensor arrived, const std::string& title) override {
    run(title, [&] { return exchange_blocks(*group_, arrived, sent, {}); });
  }
  void broadcast(at::Tensor array, int root, const std::string& title) override {
    run(title, [&] {
      ::c10d::BroadcastOptions options;
      options.rootRank = root;
      std::vector<at::Tensor> arrays{std::move(array)};
      return group_->broadcast(arrays, options);
    });
  }

  std::unique_ptr<TensorGroup> part(const std::vector<int>& ranks,
                                    const std::string& name) override {
    const auto whole = group_->getBackend(device_.type());
    require_splittable(*whole);
    // A group that has exchanged nothing is not connected, and a back end splits connected groups
    // only.
    all_reduce(at::zeros({1}, at::TensorOptions(device_)), Reduce::sum, name);
    const at::DisableRecordFunctionGuard unseen;
    try {
      const auto made = split(*whole, ranks, name);
      if (!made) return nullptr;
      const auto at = std::find(ranks.begin(), ranks.end(), rank());
      LINERATE_CHECK(made->getRank() == at - ranks.begin(),
                     name + " has its ranks in another order");
      return std::make_unique<C10dTensorGroup>(made, device_);
    } catch (const c10::Error& e) {
      throw CommError(fmt::format("rank {}: {} of process group \"{}\" cannot be made: {}", rank(),
                                  name, group_->getGroupName(), first_line(e.what())));
    }
  }

 private:
  void require_splittable(const ::c10d::Backend& whole) const {
    if (!whole.supportsSplitting() || !group_->getStore())
      throw on_every_rank(
          UsageError(fmt::format("process group \"{}\": expected a back end that makes groups of a "
                                 "part of its ranks, and a store, found \"{}\"{}; use gloo or "
                                 "NCCL, or choose a strategy in which all ranks exchange together",
                                 group_->getGroupName(), whole.getBackendName(),
                                 group_->getStore() ? "" : " without a store")));
  }

  /// Splits the back end of this device. ProcessGroup::splitGroup() splits the back ends of all
  /// devices. If one back end serves several, as gloo does, they come together at one place of the
  /// store. Before 2.13 it cannot be told to leave some out.
  c10::intrusive_ptr<::c10d::ProcessGroup> split(::c10d::Backend& whole,
                                                 const std::vector<int>& ranks,
                                                 const std::string& name) const {
    const auto options = whole.getBackendOptions();
    const KeptOptions kept(whole, options);
    options->group_name = name;
    const c10::intrusive_ptr<::c10d::Store> store =
        c10::make_intrusive<::c10d::PrefixStore>(name + "/", group_->getStore()->clone());
    const auto part = whole.split(store, ranks, options);
    if (!part) return nullptr;
    auto group = c10::make_intrusive<::c10d::ProcessGroup>(store, part->getRank(), part->getSize());
    group->setBackend(device_.type(), ::c10d::ProcessGroup::BackendType::CUSTOM, part);
    group->setGroupName(name);
    return group;
  }

  at::Tensor block_of(const at::Tensor& array) const {
    const std::int64_t block = array.numel() / size();
    return array.narrow(0, rank() * block, block);
  }

  template <typename Start>
  void run(const std::string& title, Start&& start) {
    const at::DisableRecordFunctionGuard unseen;  // by profilers, and by weight gates
    const c10::NoGradGuard no_grad;
    try {
      const WorkOfGroup work = start();
      if (!host_waits_)
        work->synchronize();
      else if (!work->wait())
        throw CommError("it was aborted");
    } catch (const std::exception& e) {
      throw CommError(fmt::format("rank {}: {} failed: {}", rank(), title, first_line(e.what())));
    }
  }

  c10::intrusive_ptr<::c10d::ProcessGroup> group_;
  c10::Device device_;
  bool host_waits_;
};

}  // namespace

std::unique_ptr<TensorGroup> make_tensor_group(const std::string& group_name, c10::Device device) {
  try {
    auto group = ::c10d::resolve_process_group(group_name);
    static_cast<void>(group->getBackend(device.type()));
    return std::make_unique<C10dTensorGroup>(std::move(group), device);
  } catch (const std::exception& e) {
    throw UsageError(fmt::format("process group \"{}\" cannot exchange memory of {}: {}",
                                 group_name, c10::DeviceTypeName(device.type(), true),
                                 first_line(e.what())));
  }
}

}  // namespace linerate::comm
