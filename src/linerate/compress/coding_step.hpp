// The work of an encode or decode task of a Plan, as its operation tells it: "powersgd(rank=4,
// round=1)".
#pragma once

#include <cstdint>

#include "linerate/doc/strategy.hpp"

namespace linerate::compress {

struct CodingStep {
  doc::Component compressor;  // as make_compressor() takes it
  int round = 0;              // of an encode
  int phase = -1;             // of Compressor::phases(); -1: it has only one
  bool two_phase = false;     // gathered payloads take the two-phase exchange

  doc::Component to_operation() const;
  /// Throws UsageError for what to_operation() does not write.
  static CodingStep of(const doc::Component& operation);
};

// Decides how many stages of fitting a tensor gets, by the results of the last calls.

/// After every five calls the average of achieved / target is judged. If it is off by more than
/// 0.2, one stage more or fewer is tried. The trial stays if it is better, else the direction
/// turns. This is descent. The published rule takes fewer stages if too much is selected. On heavy
/// tails that rule runs the wrong way and stays there. If neither neighbour was better the control
/// rests for some windows, because a trial costs five steps.
class StageControl {
 public:
  explicit StageControl(int most_stages);

  int stages() const { return state_.stages; }
  /// Takes in achieved / target of a call.
  void observe(double ratio);

  /// All there is to save: plain numbers.
  struct State {
    std::int32_t stages = 2;
    std::int32_t direction = 1;
    std::int32_t calls = 0;       // of the present window
    std::int32_t is_trial = 0;    // the present window tries a neighbour
    std::int32_t failed = 0;      // trials in a row
    std::int32_t rests_left = 0;  // windows
    double sum = 0;               // of the present window
    double score_before = 0;      // of the stages that the trial may fall back to
  };
  const State& state() const { return state_; }
  /// Whether the state is one that observe() can reach; takes it in if so.
  bool restore(const State& state);

 private:
  void finish_window(double score);
  void fall_back();
  void try_neighbour(double score);

  std::int32_t most_stages_;
  State state_;
};

}  // namespace linerate::compress
