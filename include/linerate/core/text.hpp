// Text with units, both ways, and "did you mean". Every parse error throws UsageError naming what
// was expected.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/units.hpp"

namespace linerate {

/// "25MiB", "100 MB", "4096B". A unit is required; the number may be decimal. Throws UsageError.
[[nodiscard]] Bytes parse_size(std::string_view text);
/// "10Gbit/s", "12.5GB/s", "800 Mbit/s"; "Gbps" is accepted as Gbit/s. Throws UsageError.
[[nodiscard]] BytesPerSecond parse_rate(std::string_view text);
/// "20us", "1.5ms", "2s", "300ns", "2min". Throws UsageError.
[[nodiscard]] Seconds parse_time(std::string_view text);
/// Plain decimal numbers, whole text consumed. Throws UsageError.
[[nodiscard]] std::int64_t parse_integer(std::string_view text);
/// A decimal number, whole text consumed. Throws UsageError.
[[nodiscard]] double parse_number(std::string_view text);

/// Three significant figures with the fitting unit: "20.0 us", "128 ms", "1.25 GB/s", "26.2 MB".
[[nodiscard]] std::string format_time(double seconds);
/// A share of 1, two digits: "12 %", "0.5 %".
[[nodiscard]] std::string format_percent(double share);
/// Bytes: "26.2 MB".
[[nodiscard]] std::string format_size(double bytes);
/// Bytes a second: "1.25 GB/s".
[[nodiscard]] std::string format_rate(double bytes_per_second);
/// Line rates read in bits: "10 Gbit/s".
[[nodiscard]] std::string format_bit_rate(double bytes_per_second);

/// Splits at `separator` outside parentheses: "ddp,codec(a=1,b=2)" -> {"ddp", "codec(a=1,b=2)"}.
/// Trims blanks.
[[nodiscard]] std::vector<std::string> split_outside_parentheses(std::string_view text,
                                                                 char separator);
/// ASCII only; other bytes stay.
[[nodiscard]] std::string lowered(std::string_view text);
/// Without blanks at both ends.
[[nodiscard]] std::string_view trim(std::string_view text);
/// The parts with the separator between them.
[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);

/// The candidate nearest to `word` by edit distance, or empty when none is near.
[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace linerate
