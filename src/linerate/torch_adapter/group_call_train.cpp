// Times collectives of a process group on device memory, for the probe of calibrate. Barriers and
// calls are enqueued in one stream with a mark after each, so the host does not wait between them.
//
// Example with three marks after meet(). Mark 1 follows a barrier, mark 2 an all-reduce of 1 MB,
// and mark 3 one of 4 MB. ends_ns() gives 20, 120 and 420 us. So the calls took 100 and 300 us.
#include "linerate/torch_adapter/group_call_train.hpp"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "linerate/exec/streams/stream_program.hpp"
#include "linerate/torch_streams/event_clock.hpp"
#include "linerate/torch_streams/torch_stream_device.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr auto kProbe = "probe";

}  // namespace

GroupCallTrain::GroupCallTrain(comm::TensorGroup& group, comm::Communicator& communicator,
                               c10::Device device, std::int64_t largest_bytes)
    : CallSeries(calibrate::whole_blocks(largest_bytes, group.size())),
      group_(group),
      communicator_(communicator),
      device_(device),
      clock_(torch_streams::make_tensor_clock(device)) {
  const std::int64_t bytes = calibrate::whole_blocks(largest_bytes, group.size());
  whole_ = at::zeros({bytes / static_cast<std::int64_t>(sizeof(float))},
                     at::TensorOptions(device).dtype(at::kFloat));
}

void GroupCallTrain::meet() {
  clock_->follow(torch_streams::make_tensor_device(device_, 1, {})->streams());
  communicator_.barrier(kProbe)->wait();
  marks_ = 0;
  mark();
}

void GroupCallTrain::mark() { clock_->set(marks_++, exec::LaneStreams::kComputeStream); }

/// An all-reduce of one element serves as barrier: a rank goes on when all ranks have come.
void GroupCallTrain::add_barrier() {
  group_.all_reduce(whole_.narrow(0, 0, 1), comm::Reduce::sum, kProbe);
  mark();
}

void GroupCallTrain::add(const calibrate::Call& call) {
  const at::Tensor all = whole_.narrow(0, 0, call.bytes / static_cast<std::int64_t>(sizeof(float)));
  switch (call.kind) {
    case Collective::all_reduce:
      group_.all_reduce(all, comm::Reduce::sum, kProbe);
      break;
    case Collective::reduce_scatter:
      group_.reduce_scatter(all, comm::Reduce::sum, kProbe);
      break;
    case Collective::all_gather:
      group_.all_gather(all, kProbe);
      break;
    case Collective::all_to_all:
      if (!exchanged_.defined()) exchanged_ = at::zeros_like(whole_);
      group_.all_to_all(all, exchanged_.narrow(0, 0, all.numel()), kProbe);
      break;
    default:
      group_.broadcast(all, 0, kProbe);
  }
  mark();
}

/// The times of all marks since meet(), in ns. All are in one stream, so they are over when the
/// last one is.
std::vector<double> GroupCallTrain::ends_ns() {
  clock_->wait_for(marks_ - 1);
  std::vector<double> ends;
  for (exec::MarkId m = 1; m < marks_; ++m) ends.push_back(clock_->ns_between(0, m));
  return ends;
}

void SlowHost::see(const std::string& kind, const exec::CallTimes& times) {
  Count& count = kinds_[kind];
  ++count.all;
  if (!times.was_queued || times.host_s > times.device_s) ++count.slow;
}

std::string SlowHost::note(const std::string& device) const {
  std::vector<std::string> counts;
  for (const auto& [kind, count] : kinds_)
    if (count.slow > 0) counts.push_back(fmt::format("{} of {} {}", count.slow, count.all, kind));
  if (counts.empty()) return "";
  return fmt::format(
      "K-FAC: the host takes longer to enqueue than {} to compute: {}. Steps with many such layers "
      "wait for the host",
      device, fmt::join(counts, ", "));
}

}  // namespace linerate::torch_adapter
