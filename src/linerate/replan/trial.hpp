// Whether a strategy's steps are longer than ddp's on these ranks. It is measured, because no cost
// model of the network has what messages cost the processors that compute.
#pragma once

#include <vector>

#include "linerate/comm/communicator.hpp"

namespace linerate::replan {

/// What a trial found: seconds of a step, means over the ranks, the same on every rank.
struct TrialResult {
  double ddp_s = 0, strategy_s = 0;
};

/// Blocks of steps by ddp and by the strategy in turn, kRounds of each. So a drift of the machine's
/// speed meets both. The first step of a block is not counted, because its memory is new.
class Trial {
 public:
  static constexpr int kRounds = 2;

  /// `counted`: steps of a block, at least 1.
  explicit Trial(int counted) : counted_(counted) {}

  /// Whether the next step is ddp's.
  bool of_ddp() const { return blocks_ % 2 == 0; }
  int steps_of_a_block() const { return counted_ + 1; }
  /// Blocks that have ended.
  int blocks() const { return blocks_; }
  bool is_over() const { return blocks_ == 2 * kRounds; }
  /// A step's seconds on this rank; negative: not known. True if it ends a block.
  bool add(double step_s);
  /// Of a trial that is over: of each the mean of its blocks' medians. Collective.
  TrialResult agree(comm::Communicator& communicator) const;

 private:
  int counted_;
  int blocks_ = 0, steps_ = 0;       // steps_: of the block under way
  std::vector<double> block_ = {};   // counted steps of the block under way
  std::vector<double> ddp_, other_;  // medians of blocks
};

}  // namespace linerate::replan
