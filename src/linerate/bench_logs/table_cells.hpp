// Private: the cells of one line of a table, and the numbers in them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace linerate::bench_logs {

/// Cells between separators that stand neither in quotes nor in parentheses, without their quotes
/// and the blanks around them; '\0': words. The empty cells outside "| a | b |" are none.
std::vector<std::string> cells_of(std::string_view line, char separator);
/// The cell as number_of() reads it, with its digits in groups of three taken together: "1,048,576"
/// and "32_768"; "1,234.50" where `whole` is false, but not "4,120", which may be a decimal.
std::optional<std::string> plain_digits(const std::string& cell, bool whole);

}  // namespace linerate::bench_logs
