// Which of a rank's inverses a device computes at once, and in which streams.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::exec {

/// How many inverses of K-FAC are under way at once: one in the stream that the program computes
/// in, the others on side streams.
struct InverseStreams {
  int at_once = 4;  // 1: one after the other
  /// Bytes that those on side streams may take together while they are computed. A number, not a
  /// share of what is free: not every c10 that is supported can ask a device for that, and what is
  /// free would differ from run to run.
  std::int64_t workspace_bytes = std::int64_t{1} << 30;
};

/// A run: inverses of one variant that follow each other in a rank's compute lane, and the averages
/// of factors before, between and after them. None uses what another one writes, but for an inverse
/// and the average that it has an edge from (docs/devices.md says how that is held): a device may
/// take them in any order that edges allow, or at once. Everything else keeps the lane's order.
///
/// Averages stay in the compute stream. An inverse goes where the run's inverses so far take the
/// least time by the Plan's seconds; among equals to the compute stream, but before the run's last
/// average to another one, as that would wait for it. It goes to a side stream only if their
/// largest workspaces add up to no more than workspace_bytes: a caching allocator gives each stream
/// memory of its own, while the compute stream has that of activations.
class InverseRuns {
 public:
  InverseRuns(const doc::Plan& plan, std::int32_t rank, const InverseStreams& inverses);

  /// The run that a task is in, a number; -1: in none.
  std::int32_t run_of(std::int32_t variant, std::uint32_t task) const {
    return variants_[to_index(variant)][task].run;
  }
  /// 0: the compute stream; i: the i-th side stream.
  std::int32_t place_of(std::int32_t variant, std::uint32_t task) const {
    return variants_[to_index(variant)][task].place;
  }
  /// How many side streams there are.
  std::int32_t sides() const { return sides_; }

 private:
  struct Member {
    std::int32_t run = -1, place = 0;
  };
  void spread(const doc::Plan& plan, const doc::TaskGraph& graph,
              std::span<const std::uint32_t> run, std::int64_t workspace_bytes,
              std::vector<Member>& members);
  std::int64_t room_with(std::size_t stream, std::int64_t bytes) const;

  std::vector<std::vector<Member>> variants_;  // by task
  std::vector<std::int64_t> workspace_;        // by stream: the largest; the compute stream's: 0
  std::int32_t runs_ = 0, sides_ = 0;
};

/// Whether a device may compute it while it computes others.
bool is_inverse(const doc::Task& task);

/// The most bytes that an inverse allocates while it is computed, its result included.
std::int64_t inverse_workspace(const doc::Task& inverse);

}  // namespace linerate::exec
