// The vocabulary shared by Plan and Timeline: what a task is and where it runs. Because both use
// it, predicted against measured is a join.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace linerate::doc {

enum class TaskKind : std::uint8_t {
  forward,
  backward,
  encode,
  decode,
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  factor,
  inverse,
  precondition,
  update,
  host,
  compute,
  copy  // imported traces: a kernel, a memcpy or memset that no layer claims
};
inline constexpr std::array<std::string_view, 16> kTaskKindNames = {
    "forward",    "backward",   "encode",    "decode", "all-reduce", "reduce-scatter",
    "all-gather", "all-to-all", "broadcast", "factor", "inverse",    "precondition",
    "update",     "host",       "compute",   "copy"};
constexpr std::string_view name_of(TaskKind k) {
  return kTaskKindNames[static_cast<std::size_t>(k)];
}
constexpr bool is_communication(TaskKind k) {
  return k >= TaskKind::all_reduce && k <= TaskKind::broadcast;
}
/// Throws UsageError.
TaskKind parse_task_kind(std::string_view name);

/// Executed tasks are run by linerate; observed ones are driven by autograd and reported by hooks.
enum class Origin : std::uint8_t { executed, observed };

/// Tasks of one rank on one resource run one after another in the order of the Plan.
enum class Resource : std::uint8_t { compute, network, codec, host };
inline constexpr std::array<std::string_view, 4> kResourceNames = {"compute", "network", "codec",
                                                                   "host"};
constexpr std::string_view name_of(Resource r) {
  return kResourceNames[static_cast<std::size_t>(r)];
}
Resource parse_resource(std::string_view name);

}  // namespace linerate::doc
