// The operations that traces know, more than what linerate itself runs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace linerate::trace {

/// What a communication in a trace may be; more than what linerate itself runs.
enum class CommOp : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter,
  send,
  recv,
  send_recv,
  barrier,
  unknown
};
inline constexpr std::array<std::string_view, 13> kCommOpNames = {
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "reduce", "gather",
    "scatter",    "send",           "recv",       "send-recv",  "barrier",   "unknown"};
[[nodiscard]] constexpr std::string_view name_of(CommOp op) {
  return kCommOpNames[static_cast<std::size_t>(op)];
}
/// busbw = algbw * factor (nccl-tests; gather and scatter as in PARAM); nullopt for barrier and
/// unknown.
[[nodiscard]] std::optional<double> bus_factor(CommOp op, int ranks);
/// No rank can leave before the last one has arrived, so ends agree between ranks. Not so for
/// broadcast (root), reduce (non-root), gather, scatter, send and recv.
[[nodiscard]] constexpr bool synchronises(CommOp op) {
  return op == CommOp::all_reduce || op == CommOp::reduce_scatter || op == CommOp::all_gather ||
         op == CommOp::all_to_all || op == CommOp::barrier;
}
/// Whether it may be an exchange of gradients.
[[nodiscard]] constexpr bool carries_gradients(CommOp op) {
  return op == CommOp::all_reduce || op == CommOp::reduce_scatter;
}

}  // namespace linerate::trace
