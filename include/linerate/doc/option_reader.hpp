// Reads the options of one Component of a Strategy, each with its unit, and refuses unknown ones.
#pragma once

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
  /// `component` outlives the reader.
  explicit OptionReader(const Component& component) : component_(component) {}

  /// "25MiB"; absent: `otherwise`. Throws UsageError.
  Bytes size(std::string_view key, Bytes otherwise);
  /// "3.5ms"; absent: `otherwise`. Throws UsageError.
  Seconds time(std::string_view key, Seconds otherwise);
  /// "3.5ms". Throws UsageError.
  std::optional<Seconds> time(std::string_view key);
  /// "10GB/s". Throws UsageError.
  std::optional<BytesPerSecond> rate(std::string_view key);
  /// A whole number; absent: `otherwise`. Throws UsageError.
  std::int64_t integer(std::string_view key, std::int64_t otherwise);
  /// A decimal number. Throws UsageError.
  std::optional<double> number(std::string_view key);
  /// As it is written; absent: `otherwise`.
  std::string text(std::string_view key, const std::string& otherwise);
  /// One of `words`; the answer is its index.
  std::size_t choice(std::string_view key, const std::vector<std::string>& words,
                     std::size_t otherwise = 0);
  /// "fp16", "bf16", "fp32" (or f16, f32); absent: as the gradients are.
  std::optional<DType> wire(std::string_view key = "wire");

  /// Throws UsageError with component, option and message.
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  /// Says what was expected as the option's value, and the value as it was written.
  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const;
  /// Throws UsageError if an option was given that nobody asked for.
  void finish() const;
  /// The options asked for so far, in that order.
  const std::vector<std::string>& known() const { return known_; }

 private:
  const std::string* find(std::string_view key);
  /// The option's text as a value; absent: none.
  template <typename Parse>
  auto parsed(std::string_view key, Parse parse);

  const Component& component_;
  std::vector<std::string> known_;
};

}  // namespace linerate::doc
