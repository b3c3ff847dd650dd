#include "torch_adapter/group_over_communicator.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/buffer.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Reduce;
using WorkPtr = c10::intrusive_ptr<::c10d::Work>;

class DoneWork final : public ::c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
};

/// Waits here.
WorkPtr done(const comm::WorkPtr& work) {
  work->wait();
  return c10::make_intrusive<DoneWork>();
}

Reduce reduction_of(::c10d::ReduceOp::RedOpType op) {
  if (op == ::c10d::ReduceOp::SUM) return Reduce::sum;
  if (op == ::c10d::ReduceOp::MAX) return Reduce::max;
  if (op == ::c10d::ReduceOp::MIN) return Reduce::min;
  throw InternalError("a reduction that no plan has");
}

class CommunicatorBackend final : public ::c10d::Backend {
 public:
  CommunicatorBackend(comm::Communicator& communicator, GroupFaults faults)
      : Backend(communicator.rank(), communicator.size()),
        communicator_(communicator),
        faults_(std::move(faults)) {}
  explicit CommunicatorBackend(std::unique_ptr<comm::Communicator> part)
      : Backend(part->rank(), part->size()), own_(std::move(part)), communicator_(*own_) {}

  const std::string getBackendName() const override { return "communicator"; }

  bool supportsSplitting() const override { return !faults_.has_no_parts; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  /// Among all of its ranks, each of which names the part that it is in, or another.
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<::c10d::Store>&,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override {
    const auto at = std::find(ranks.begin(), ranks.end(), getRank());
    const bool is_in = at != ranks.end();
    auto part = communicator_.split(is_in ? ranks.front() : comm::kNoGroup,
                                    static_cast<int>(at - ranks.begin()), options->group_name);
    if (!is_in) return nullptr;
    return c10::make_intrusive<CommunicatorBackend>(std::move(part));
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const ::c10d::BroadcastOptions& options) override {
    return done(
        communicator_.broadcast(buffer(tensors[0]), static_cast<int>(options.rootRank), "group"));
  }
  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const ::c10d::AllreduceOptions& options) override {
    return done(
        communicator_.all_reduce(buffer(tensors[0]), reduction_of(options.reduceOp), "group"));
  }
  WorkPtr _allgather_base(at::Tensor& all, at::Tensor& mine,
                          const ::c10d::AllgatherOptions&) override {
    return damaged(all, communicator_.all_gather(buffer(mine), buffer(all), "group"));
  }
  WorkPtr alltoall_base(at::Tensor& arrived, at::Tensor& sent, std::vector<std::int64_t>&,
                        std::vector<std::int64_t>&, const ::c10d::AllToAllOptions&) override {
    return damaged(arrived, communicator_.all_to_all(buffer(sent), buffer(arrived), "group"));
  }
  WorkPtr _reduce_scatter_base(at::Tensor& mine, at::Tensor& all,
                               const ::c10d::ReduceScatterOptions& options) override {
    return done(communicator_.reduce_scatter(buffer(all), buffer(mine),
                                             reduction_of(options.reduceOp), "group"));
  }

 private:
  WorkPtr damaged(at::Tensor& arrived, const comm::WorkPtr& work) {
    const WorkPtr all = done(work);
    if (faults_.damage) faults_.damage(arrived);
    return all;
  }

  const std::unique_ptr<comm::Communicator> own_;  // null: another's
  comm::Communicator& communicator_;
  const GroupFaults faults_;
  const c10::intrusive_ptr<Options> options_ = c10::make_intrusive<Options>("communicator");
};

}  // namespace

GroupOverCommunicator::GroupOverCommunicator(
    std::string name, comm::Communicator& communicator, GroupFaults faults,
    const std::function<BackendPointer(BackendPointer)>& for_devices)
    : name_(std::move(name)) {
  ::c10d::set_thread_isolation_mode(true);  // a registry for each rank
  auto group = c10::make_intrusive<::c10d::ProcessGroup>(c10::make_intrusive<::c10d::HashStore>(),
                                                         communicator.rank(), communicator.size());
  BackendPointer backend =
      c10::make_intrusive<CommunicatorBackend>(communicator, std::move(faults));
  if (for_devices) backend = for_devices(std::move(backend));
  for (const auto type : {c10::DeviceType::CPU, c10::DeviceType::PrivateUse1})
    if (type == c10::DeviceType::CPU || for_devices)
      group->setBackend(type, ::c10d::ProcessGroup::BackendType::CUSTOM, backend);
  ::c10d::register_process_group(name_, group);
  group_ = std::make_shared<decltype(group)>(std::move(group));
}

GroupOverCommunicator::~GroupOverCommunicator() { ::c10d::unregister_process_group(name_); }

}  // namespace linerate::torch_adapter
