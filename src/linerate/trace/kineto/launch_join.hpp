// Private: what the launch on the host says about the communication kernel that it started.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Where a communication kernel comes from.
struct KernelOrigin {
  const KinetoEvent* launch = nullptr;   // null: not in the trace
  const CollectiveArgs* args = nullptr;  // of the trace or the join; null: no metadata
  bool deduced = false;  // only the annotation around the launch knows, no metadata of its own
  CommOp marked = CommOp::unknown;  // the operation that this annotation names
};

/// Joins kernels with their collective metadata: own arguments, then External id, then the
/// record_param_comms operations that the launch moves, then the annotation around it. The trace
/// and its launches must outlive it.
class LaunchJoin {
 public:
  LaunchJoin(const KinetoTrace& trace, const LaunchTimes& launches);

  KernelOrigin origin_of(const KinetoEvent& kernel) const;

 private:
  using EventsByThread =
      std::unordered_map<std::int64_t, std::vector<const KinetoEvent*>>;  // by start

  void sum_coalesced();
  bool is_coalesced(const KinetoEvent& mark) const;
  const CollectiveArgs* at(std::int32_t args) const;
  const CollectiveArgs* own_args(const KinetoEvent& kernel, const KinetoEvent* launch) const;
  std::int32_t args_around(const KinetoEvent& launch) const;
  const KinetoEvent* annotation_around(const KinetoEvent& launch) const;

  const KinetoTrace& trace_;
  const LaunchTimes& launches_;
  std::unordered_map<std::uint64_t, std::int32_t> args_by_id_;  // by External id
  std::unordered_map<std::uint64_t, CollectiveArgs> sums_;      // of one launch, by correlation
  EventsByThread records_;  // record_param_comms operations that have arguments
  EventsByThread marks_;    // all
};

// Private: which c10d operator issued a communication of Gloo or MPI. The annotation of the
// communication names neither the operator nor the group.
//
// Ranks issue in the same order, but several threads of a back end run what was issued, in another
// order on each rank. Ranks 0, 1 and 2 issue buckets A, B and C. On rank 0 they start as A, B, C,
// on rank 1 as B, A, C, on rank 2 as A, C, B. Matched by start, B on rank 1 would be A on rank 0.
// Matched by the order of issue they agree.

/// A communication that ran on the host, with what its issuing operator says of it.
struct HostCommunication {
  const KinetoEvent* mark = nullptr;
  CollectiveArgs args;  // the operation is the operator's: a reduce-scatter runs as an all-reduce
  std::int64_t issued = -1;     // place of the operator among all; -1: none found
  std::int64_t called_ns = -1;  // when it began
};

/// Communications by start. Operators are visited in order, and each takes the first annotation
/// after it that is free and has its operation and size. Among buckets of equal size a swap is
/// possible. It changes neither sizes nor the order of issue.
std::vector<HostCommunication> host_communications(const KinetoTrace& trace);

// Private: a job whose device is the CPU: which of the host's records are computation.

/// Is there nothing of an accelerator in it: no back end, launch or annotation of one?
bool runs_on_cpu(const KinetoTrace& trace);

/// When host back ends communicated, by thread: disjoint, by start.
SpansByThread host_communication_times(const KinetoTrace& trace);
/// Whether an operator of the host ran within one of these spans of its thread. Operators of a host
/// back end's own threads are part of its communication: Gloo copies gathered tensors to where they
/// belong and adds sparse ones up there.
bool is_within(const SpansByThread& spans, const KinetoEvent& op);

/// Outermost operators on the thread of the steps, nodes of the autograd engine among them: by
/// start, disjoint.
std::vector<Span> host_calls(const KinetoTrace& trace);

/// Fills RankActivity::compute and compute_names with the operators of the host that compute.
/// Annotations around operators do not count, and neither do operators inside a communication or
/// those of the data loader. An operator that communicates inside does not count itself; the
/// operators in it do.
void add_host_computation(const KinetoTrace& trace, RankActivity& rank);

// Private: how much of an all-to-all with uneven splits crosses the network.

/// For one rank's trace, which must outlive it. Counts what stayed unknown.
///
/// Example. Rank 1 of three sends rows in parts of 2, 4 and 6 and receives parts of 1, 4 and 3. Its
/// own part of 4 stays on the rank. So it sends 8 rows and receives 4, and the link carries 8.
class UnevenAllToAll {
 public:
  explicit UnevenAllToAll(const KinetoTrace& trace) : trace_(trace) {}

  /// The larger of what the rank sends and receives in bytes, its own part left out. -1: the splits
  /// are even, or unknown.
  std::int64_t bus_bytes_of(const CollectiveArgs& args);
  /// One note for each reason why splits stayed unknown.
  std::vector<std::string> notes() const;

 private:
  std::optional<std::size_t> own_position(const CollectiveArgs& args) const;

  const KinetoTrace& trace_;
  std::size_t cut_ = 0, unplaced_ = 0;
};

}  // namespace linerate::trace
