// A hyper-parameter: a number, or a function of the step.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <variant>

namespace linerate::torch_adapter {

/// A number, or one for each step.
/// Thread safety: a value; what a function that was given may do is up to it.
class ScheduledValue {
 public:
  /// From the step's number, counted from 0.
  using OfStep = std::function<double(std::int64_t)>;

  /// The same in every step.
  ScheduledValue(double value) : value_(value) {}
  /// `of_step(step)` in each step.
  template <typename F>
  requires(std::is_invocable_r_v<double, F, std::int64_t>) ScheduledValue(F of_step)
      : value_(OfStep(std::move(of_step))) {}

  /// The number, if it is one.
  std::optional<double> constant() const {
    const double* fixed = std::get_if<double>(&value_);
    return fixed ? std::optional(*fixed) : std::nullopt;
  }
  /// In this step.
  double at(std::int64_t step) const {
    if (const double* fixed = std::get_if<double>(&value_)) return *fixed;
    return std::get<OfStep>(value_)(step);
  }

 private:
  std::variant<double, OfStep> value_;
};

}  // namespace linerate::torch_adapter
