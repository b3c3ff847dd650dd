// The vocabulary shared by Plan and Timeline: what a task is and where it runs. As both use it,
// comparing predicted and measured is a join.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "linerate/core/collective.hpp"

namespace linerate::doc {

/// What a task is.
enum class TaskKind : std::uint8_t {
  forward,
  backward,
  encode,
  decode,
  all_reduce,
  reduce_scatter,
  all_gather,
  all_gather_v,
  all_to_all,
  broadcast,
  factor,
  inverse,
  precondition,
  update,
  host,
  compute,  // imported traces: a kernel that no layer claims
  copy      // moves values on their own rank; imported traces: memcpy and memset
};
inline constexpr std::array<std::string_view, 17> kTaskKindNames = {
    "forward",      "backward",     "encode",     "decode",    "all-reduce", "reduce-scatter",
    "all-gather",   "all-gather-v", "all-to-all", "broadcast", "factor",     "inverse",
    "precondition", "update",       "host",       "compute",   "copy"};
[[nodiscard]] constexpr std::string_view name_of(TaskKind k) {
  return kTaskKindNames[static_cast<std::size_t>(k)];
}
/// Whether it is a collective.
[[nodiscard]] constexpr bool is_communication(TaskKind k) {
  return k >= TaskKind::all_reduce && k <= TaskKind::broadcast;
}
/// The collective that a communication task is; an all-gather-v counts as an all-gather. Throws
/// InternalError for other kinds.
[[nodiscard]] Collective collective_of(TaskKind kind);

/// Executed tasks are run by linerate; observed ones are driven by others (autograd, the user's
/// optimizer) and reported.
enum class Origin : std::uint8_t { executed, observed };

/// What first..last of a task count.
enum class Subject : std::uint8_t { none, layers, gradients, payloads, factors, inverses };
inline constexpr std::array<std::string_view, 6> kSubjectNames = {
    "none", "layers", "gradients", "payloads", "factors", "inverses"};
[[nodiscard]] constexpr std::string_view name_of(Subject s) {
  return kSubjectNames[static_cast<std::size_t>(s)];
}

/// Tasks of one rank on one resource run one after another in the order of the Plan.
enum class Resource : std::uint8_t { compute, network, codec, host };
inline constexpr std::array<std::string_view, 4> kResourceNames = {"compute", "network", "codec",
                                                                   "host"};
[[nodiscard]] constexpr std::string_view name_of(Resource r) {
  return kResourceNames[static_cast<std::size_t>(r)];
}

}  // namespace linerate::doc
