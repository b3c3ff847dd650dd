// Private: a job whose device is the CPU: which of the host's records are computation.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Is there nothing of an accelerator in it: no back end, launch or annotation of one?
bool runs_on_cpu(const KinetoTrace& trace);

/// Operators of a host back end's own threads, inside its communications: Gloo copies gathered
/// tensors to where they belong and adds sparse ones up there. They are part of the communication.
class InsideCommunications {
 public:
  explicit InsideCommunications(const KinetoTrace& trace);
  bool contains(const CpuOp& op) const;

 private:
  std::map<std::int64_t, std::vector<Span>> by_thread_;  // disjoint, by start
};

struct HostComputation {
  std::vector<Span> spans;
  std::vector<std::uint64_t> names;  // RankActivity::compute_names
};

/// Outermost operators on the thread of the steps, nodes of the autograd engine among them: by
/// start, disjoint.
std::vector<Span> host_calls(const KinetoTrace& trace);

/// Operators of the host that compute. Annotations around operators do not count, and neither do
/// operators inside a communication or those of the data loader. An operator that communicates
/// inside does not count itself; the operators in it do.
HostComputation host_computation(const KinetoTrace& trace);

}  // namespace linerate::trace
