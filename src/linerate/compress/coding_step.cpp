// Writes and reads the operation text of an encode or decode task. The compressor's own options and
// the task's three share one list: "powersgd(rank=4, round=1, phase=2)". So no compressor may have
// an option named round, phase or exchange (registry.cpp checks that).
#include "linerate/compress/coding_step.hpp"

#include <fmt/format.h>

#include <charconv>
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

}  // namespace linerate::compress
