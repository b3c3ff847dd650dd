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

bool are_possible(std::int32_t stages, int most) { return stages >= 1 && stages <= most; }

}  // namespace

void StageControl::observe(double ratio, int most_stages) {
  sum += ratio;
  if (++calls < kWindow) return;
  const double score = std::abs(sum / kWindow - 1);
  sum = 0;
  calls = 0;
  finish_window(score, most_stages);
}

/// The score of the window that ended is judged first as the result of a trial, if it was one. Only
/// then may it start another.
void StageControl::finish_window(double score, int most_stages) {
  const bool was_trial = is_trial != 0;
  is_trial = 0;
  if (was_trial && score >= score_before) return fall_back();
  if (was_trial) failed = 0;
  if (score <= kTolerated) return;
  if (rests_left > 0) {
    --rests_left;
    return;
  }
  try_neighbour(score, most_stages);
}

void StageControl::fall_back() {
  stages -= direction;
  direction = -direction;
  if (++failed < 2) return;
  failed = 0;
  rests_left = kRest;
}

void StageControl::try_neighbour(double score, int most_stages) {
  if (!are_possible(stages + direction, most_stages)) direction = -direction;
  if (!are_possible(stages + direction, most_stages)) return;
  stages += direction;
  is_trial = 1;
  score_before = score;
}

/// Also refuses a trial whose stages before it were out of range, because fall_back() would return
/// to them.
bool StageControl::is_sane(int most_stages) const {
  return are_possible(stages, most_stages) && (direction == 1 || direction == -1) && calls >= 0 &&
         calls < kWindow && std::isfinite(sum) && std::isfinite(score_before) &&
         (is_trial == 0 || is_trial == 1) && failed >= 0 && failed < 2 && rests_left >= 0 &&
         rests_left <= kRest && are_possible(stages - is_trial * direction, most_stages);
}

}  // namespace linerate::compress
