// Private: names of collectives, kernels and element types, as PyTorch and the tools around it
// write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// "allreduce", "_allgather_base", "reduce_scatter_tensor_coalesced", ... in any case; unknown ones
/// are unknown.
CommOp op_of_collective_name(std::string_view name);
/// "wait", "init": records that move nothing.
bool is_no_communication(std::string_view collective_name);
/// Whether a kernel of this lower-case name communicates; of what is unknown, whether its name
/// sounds so.
enum class Communicates : std::uint8_t { no, maybe, yes };
Communicates kernel_communicates(std::string_view lower);
/// From a kernel's lower-case name; all-to-all shows as send-recv, RCCL's generic kernel as
/// unknown.
CommOp op_of_kernel_name(std::string_view lower);
/// The bytes of an element, and the nearest element type of the documents. Sizes agree except for
/// complex numbers, packed bits and halves of bytes.
struct ElementType {
  int bytes = 0;
  DType dtype = DType::f32;
};
/// "Float", "BFloat16", "c10::Half", "long int", "Float8_e4m3fn", ...; nullopt when unknown.
std::optional<ElementType> element_type_of(std::string_view type);

// Private: which ranks a process group has, from what events and the head of a trace say about it.
// Ranks must agree on a name for the group, or their collectives are not matched
// (explain/program.hpp). PyTorch's own name is not enough: "tp" may be several groups of one job.

/// A list of numbers that PyTorch writes as text and cuts above 30 items. It then has the first 30
/// and "...", or the first 29, "..." and the last. A cut list is never taken for the whole.
struct NumberList {
  std::vector<std::int64_t> items;
  bool cut = false;
};
/// "[0, 1]", with or without the quotes around it; nullopt when it is no list of numbers.
std::optional<NumberList> parse_number_list(std::string_view text);

/// distributedInfo's pg_config.
struct ConfiguredGroup {
  std::string name;  // pg_name; files that have none: uid
  int size = -1;
  std::vector<std::int64_t> ranks;  // empty: not stated, or cut
};
/// The JSON of the array; what cannot be read is left out.
std::vector<ConfiguredGroup> parse_configured_groups(std::string_view json);

/// A group as an event names it. -1 and empty: absent.
struct GroupRecord {
  std::string name, ranks;  // both as written
  std::int64_t start = -1, stride = -1;
  int size = -1;
  bool operator==(const GroupRecord&) const = default;
};

/// A group record, resolved: its ranks in full, and a text for it. The text is equal on all ranks
/// of the group and differs between groups of one name.
struct ResolvedGroup {
  std::vector<std::int64_t> ranks;  // empty: unknown
  std::string text;  // "0 (ranks 0..7)", "tp (ranks 0, 4, 6)", "0 (8 ranks, cut list [0, ...)"
};
/// The ranks of each record, from the first of these that is there:
///
/// 1. start, stride and size
/// 2. a list that PyTorch did not cut
/// 3. the entry of pg_config with the same name
/// 4. the whole job, if the size is the job's
/// 5. another record of the same name, size and list
///
/// Two groups of 64 ranks may begin with the same 30, so a cut list never decides.
std::vector<ResolvedGroup> resolve_groups(const std::vector<GroupRecord>& records,
                                          const std::vector<ConfiguredGroup>& configured,
                                          int world_size);

// Private: the rank that a file's name gives.

/// The rank in a file name: rank-3, rank3, rank_3, worker3; -1 when there is none.
int rank_in_name(std::string_view path);

// Private: how much a job would send of its gradients without a hook.

/// Gradients that are sent in fewer bytes than this share of theirs went through a hook: padding
/// and flags are none.
inline constexpr double kHookSendsLess = 0.9;

inline std::int64_t bytes_of_gradient(const GradientRecord& g) {
  return g.elements * static_cast<std::int64_t>(size_of(g.dtype));
}
/// Of one backward pass, as the gradients of the job are; 0: unknown.
inline std::int64_t dense_bytes(const Job& job) {
  std::int64_t bytes = 0;
  for (const GradientRecord& g : job.gradients) bytes += bytes_of_gradient(g);
  return bytes;
}

}  // namespace linerate::trace
