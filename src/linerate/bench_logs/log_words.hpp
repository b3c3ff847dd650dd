// Private: the words and conventions that logs of collective benchmarks share.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/collective.hpp"
#include "linerate/core/dtype.hpp"

namespace linerate::bench_logs {

/// Lower case without the marks that differ between spellings: '_', '-' and blanks.
std::string plain_word(std::string_view text);
std::vector<std::string_view> words_of(std::string_view line);
/// Whether the word is one of `names`, which single blanks divide.
bool is_among(std::string_view word, std::string_view names);
std::string replaced(std::string_view text, std::string_view what, std::string_view with);
/// The line with plain blanks for non-breaking ones (U+00A0).
std::string plain_blanks(std::string_view line);
/// For messages: without control characters and blanks in a row, cut at 80 characters.
std::string shortened(std::string_view line);
/// For messages: `line 7: "1048576 abc"`.
std::string quoted_line(std::size_t number, std::string_view line);
/// The whole word as a number; "1.2e+06" and "12.00" included, "N/A" and "nan" not.
std::optional<double> number_of(std::string_view word);
/// "float", "ncclFloat32", "MPI_CHAR", "half", "bfloat16", "Float" ... nullopt when unknown.
std::optional<DType> dtype_of_log(std::string_view name);
/// "all_reduce_perf", "alltoall_perf", "Allgather" ... anywhere in the text.
std::optional<Collective> collective_named_in(std::string_view text);
/// --ranks contradicts what was found: "2", "14 to 19".
[[noreturn]] void refuse_ranks(const std::string& name, int asked, const std::string& found);
/// The rank count that holds: the log's, else the caller's, else 0. Throws InputError when they
/// contradict.
int settle_ranks(const std::string& name, std::optional<int> from_log,
                 std::optional<int> from_caller);

}  // namespace linerate::bench_logs
