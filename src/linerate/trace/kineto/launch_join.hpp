// Private: what the launch on the host says about the communication kernel that it started.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Where a communication kernel comes from.
struct KernelOrigin {
  const Launch* launch = nullptr;        // null: not in the trace
  const CollectiveArgs* args = nullptr;  // of the trace or the join; null: no metadata
  bool deduced = false;  // only the annotation around the launch knows, no metadata of its own
  CommOp marked = CommOp::unknown;  // the operation that this annotation names
};

/// Joins kernels with their collective metadata: own arguments, then
/// External id, then the record_param_comms operations that the launch moves, then the annotation
/// around it. The trace must outlive it.
class LaunchJoin {
 public:
  explicit LaunchJoin(const KinetoTrace& trace);

  KernelOrigin origin_of(const DeviceEvent& kernel) const;

 private:
  using MarksByThread = std::unordered_map<std::int64_t, std::vector<const CommMark*>>;  // by start

  const Launch* launch_of(const DeviceEvent& kernel) const;
  void sum_coalesced();
  bool is_coalesced(const CommMark& mark) const;
  const CollectiveArgs* at(std::int32_t args) const;
  const CollectiveArgs* own_args(const DeviceEvent& kernel, const Launch* launch) const;
  std::int32_t args_around(const Launch& launch) const;
  const CommMark* annotation_around(const Launch& launch) const;

  const KinetoTrace& trace_;
  std::unordered_map<std::uint64_t, Launch> launches_;          // by correlation
  std::unordered_map<std::uint64_t, std::int32_t> args_by_id_;  // by External id
  std::unordered_map<std::uint64_t, CollectiveArgs> sums_;      // of one launch, by correlation
  MarksByThread records_;  // record_param_comms operations that have arguments
  MarksByThread marks_;    // all
};

}  // namespace linerate::trace
