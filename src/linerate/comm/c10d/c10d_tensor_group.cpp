#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <utility>
#include <vector>

#include "linerate/comm/c10d/process_group.hpp"
#include "linerate/comm/c10d/tensor_group.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

::c10d::ReduceOp reduction(Reduce op) {
  switch (op) {
    case Reduce::sum:
      return ::c10d::ReduceOp::SUM;
    case Reduce::max:
      return ::c10d::ReduceOp::MAX;
    case Reduce::min:
      return ::c10d::ReduceOp::MIN;
  }
  throw InternalError("a reduction without a name");
}

using WorkOfGroup = c10::intrusive_ptr<::c10d::Work>;

/// LibTorch before 2.13 has the other name alone; later ones warn of it.
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

/// A Work's wait() lets the current stream wait for the group's own, and the host for nothing; on
/// the CPU it lets the host wait.
class C10dTensorGroup final : public TensorGroup {
 public:
  explicit C10dTensorGroup(c10::intrusive_ptr<::c10d::ProcessGroup> group)
      : group_(std::move(group)) {}

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

 private:
  at::Tensor block_of(const at::Tensor& array) const {
    const std::int64_t block = array.numel() / size();
    return array.narrow(0, rank() * block, block);
  }

  template <typename Start>
  void run(const std::string& title, Start&& start) {
    const at::DisableRecordFunctionGuard unseen;  // by profilers, and by weight gates
    const c10::NoGradGuard no_grad;
    try {
      if (!start()->wait()) throw CommError("it was aborted");
    } catch (const std::exception& e) {
      throw CommError(fmt::format("rank {}: {} failed: {}", rank(), title, first_line(e.what())));
    }
  }

  c10::intrusive_ptr<::c10d::ProcessGroup> group_;
};

}  // namespace

std::unique_ptr<TensorGroup> make_tensor_group(const std::string& group_name,
                                               c10::DeviceType device) {
  try {
    auto group = ::c10d::resolve_process_group(group_name);
    static_cast<void>(group->getBackend(device));
    return std::make_unique<C10dTensorGroup>(std::move(group));
  } catch (const std::exception& e) {
    throw UsageError(fmt::format("process group \"{}\" cannot exchange memory of {}: {}",
                                 group_name, c10::DeviceTypeName(device, true),
                                 first_line(e.what())));
  }
}

}  // namespace linerate::comm
