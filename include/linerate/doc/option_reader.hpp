// Reads the options of one Component of a Strategy, each with its unit, and refuses unknown ones.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::doc {

/// Each getter names an option that exists; finish() throws UsageError for any other, with the
/// nearest known name. Errors name component and option.
/// Thread safety: one thread at a time.
class OptionReader {
 public:
  explicit OptionReader(const Component& component) : component_(component) {}

  Bytes size(std::string_view key, Bytes otherwise);
  Seconds time(std::string_view key, Seconds otherwise);
  std::optional<Seconds> time(std::string_view key);
  std::optional<BytesPerSecond> rate(std::string_view key);
  std::int64_t integer(std::string_view key, std::int64_t otherwise);
  std::optional<double> number(std::string_view key);
  std::string text(std::string_view key, const std::string& otherwise);
  /// One of `words`; the answer is its index.
  std::size_t choice(std::string_view key, const std::vector<std::string>& words,
                     std::size_t otherwise = 0);
  /// "fp16", "bf16", "fp32" (or f16, f32); absent: as the gradients are.
  std::optional<DType> wire(std::string_view key = "wire");

  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  /// Says what was expected as the option's value, and the value as it was written.
  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const;
  void finish() const;
  /// The options asked for so far, in that order.
  const std::vector<std::string>& known() const { return known_; }

 private:
  const std::string* find(std::string_view key);
  template <typename Parse>
  auto parsed(std::string_view key, const std::string& value, Parse parse) const;

  const Component& component_;
  std::vector<std::string> known_;
};

}  // namespace linerate::doc
