// Writes and reads the operation text of an encode or decode task. The compressor's own options and
// the task's three share one list: "powersgd(rank=4, round=1, phase=2)". So no compressor may have
// an option named round, phase or exchange (registry.cpp checks that).
#include "linerate/compress/coding_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

// Options of a Plan's operations, which no compressor has.
constexpr std::string_view kRound = "round";
constexpr std::string_view kPhase = "phase";
constexpr std::string_view kExchange = "exchange";
constexpr std::string_view kTwoPhase = "two-phase";

int number_of(const doc::Component& operation, const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw UsageError(fmt::format("operation {}: expected a number from 0 on, found \"{}\"",
                                 to_text(operation), text));
  return number;
}

}  // namespace

doc::Component CodingStep::to_operation() const {
  doc::Component operation = compressor;
  if (round > 0) operation.options.emplace_back(kRound, std::to_string(round));
  if (phase >= 0) operation.options.emplace_back(kPhase, std::to_string(phase));
  if (two_phase) operation.options.emplace_back(kExchange, kTwoPhase);
  return operation;
}

CodingStep CodingStep::of(const doc::Component& operation) {
  CodingStep step;
  step.compressor.name = operation.name;
  for (const auto& [key, value] : operation.options) {
    if (key == kRound)
      step.round = number_of(operation, value);
    else if (key == kPhase)
      step.phase = number_of(operation, value);
    else if (key == kExchange && value == kTwoPhase)
      step.two_phase = true;
    else
      step.compressor.options.emplace_back(key, value);
  }
  return step;
}

// Adjusts how many stages sidco fits (method/sidco.cpp), by what the last calls selected.
//
// Example, with two stages: five calls select .6 of what they should on average, so the score is
// .4, more than the tolerated .2. The next window tries three stages. If its score is .1, three
// stages stay. If it is .5, two stages come back and the direction turns. The window after that has
// a score of .4 again, so one stage is tried. If one is not better either, both neighbours failed,
// and eight windows pass before another trial.

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
