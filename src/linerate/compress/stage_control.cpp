// Adjusts how many stages sidco fits (method/sidco.cpp), by what the last calls selected.
//
// Example, with two stages: five calls select .6 of what they should on average, so the score is
// .4, more than the tolerated .2. The next window tries three stages. If its score is .1, three
// stages stay. If it is .5, two stages come back and the direction turns. The window after that has
// a score of .4 again, so one stage is tried. If one is not better either, both neighbours failed,
// and eight windows pass before another trial.
#include "linerate/compress/stage_control.hpp"

#include <algorithm>
#include <cmath>

namespace linerate::compress {
namespace {

constexpr std::int32_t kWindow = 5;  // calls
constexpr std::int32_t kRest = 8;    // windows
constexpr double kTolerated = 0.2;   // of |average ratio - 1|

}  // namespace

StageControl::StageControl(int most_stages) : most_stages_(std::max(1, most_stages)) {
  state_.stages = std::min(state_.stages, most_stages_);
}

void StageControl::observe(double ratio) {
  state_.sum += ratio;
  if (++state_.calls < kWindow) return;
  const double score = std::abs(state_.sum / kWindow - 1);
  state_.sum = 0;
  state_.calls = 0;
  finish_window(score);
}

/// The score of the window that ended is judged first as the result of a trial, if it was one. Only
/// then may it start another.
void StageControl::finish_window(double score) {
  const bool was_trial = state_.is_trial != 0;
  state_.is_trial = 0;
  if (was_trial && score >= state_.score_before) return fall_back();
  if (was_trial) state_.failed = 0;
  if (score <= kTolerated) return;
  if (state_.rests_left > 0) {
    --state_.rests_left;
    return;
  }
  try_neighbour(score);
}

void StageControl::fall_back() {
  state_.stages -= state_.direction;
  state_.direction = -state_.direction;
  if (++state_.failed < 2) return;
  state_.failed = 0;
  state_.rests_left = kRest;
}

void StageControl::try_neighbour(double score) {
  const auto is_possible = [&](std::int32_t stages) {
    return stages >= 1 && stages <= most_stages_;
  };
  if (!is_possible(state_.stages + state_.direction)) state_.direction = -state_.direction;
  if (!is_possible(state_.stages + state_.direction)) return;
  state_.stages += state_.direction;
  state_.is_trial = 1;
  state_.score_before = score;
}

/// Also refuses a trial whose stages before it were out of range, because fall_back() would return
/// to them.
bool StageControl::restore(const State& state) {
  const bool is_sane = state.stages >= 1 && state.stages <= most_stages_ &&
                       (state.direction == 1 || state.direction == -1) && state.calls >= 0 &&
                       state.calls < kWindow && std::isfinite(state.sum) &&
                       std::isfinite(state.score_before) &&
                       (state.is_trial == 0 || state.is_trial == 1) && state.failed >= 0 &&
                       state.failed < 2 && state.rests_left >= 0 && state.rests_left <= kRest;
  const std::int32_t before = state.stages - state.is_trial * state.direction;
  if (!is_sane || before < 1 || before > most_stages_) return false;
  state_ = state;
  return true;
}

}  // namespace linerate::compress
