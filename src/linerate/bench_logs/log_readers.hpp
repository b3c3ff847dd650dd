// Private: logs of collective benchmarks and tables of one's own timings become rows of
// (collective, ranks, dtype, bytes, seconds). The readers know nccl-tests of every era as text and
// JSON, OSU micro-benchmarks, and the summary of DeepSpeed's logger. Sizes of all formats are
// converted to one convention, S of core/dtype.hpp.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/bench_logs/collective_sample.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/trace/input/input_file.hpp"

namespace linerate::bench_logs {

/// By the first bytes (InputFile::head).
bool is_collective_log(std::string_view head);
/// Only for nccl-tests' JSON.
bool is_nccl_tests_json(std::string_view head);
/// Throws InputError if no row can be read, or if --ranks contradicts the log. It also throws if a
/// size is one rank's part and the number of ranks is unknown.
CollectiveLog read_collective_log(trace::InputFile& input,
                                  const CollectiveLogOptions& options = {});
CollectiveLog load_collective_log(const std::filesystem::path& path,
                                  const CollectiveLogOptions& options = {});

// The readers, one per format.

bool is_nccl_tests(std::string_view head);
CollectiveLog read_nccl_tests(trace::InputFile& input, const CollectiveLogOptions& options);
CollectiveLog read_nccl_tests_json(trace::InputFile& input, const CollectiveLogOptions& options);
bool is_rccl_tests_json(std::string_view head);
CollectiveLog read_rccl_tests_json(trace::InputFile& input, const CollectiveLogOptions& options);
/// The summary of DeepSpeed's communication logger.
bool is_deepspeed(std::string_view head);
CollectiveLog read_deepspeed(trace::InputFile& input, const CollectiveLogOptions& options);
bool is_osu(std::string_view head);
CollectiveLog read_osu(trace::InputFile& input, const CollectiveLogOptions& options);
/// A header that names sizes and times, with separators.
bool is_collective_table(std::string_view head);
/// The summary of Gaudi's hccl_demo: a table with blanks.
bool is_hccl_demo(std::string_view head);
/// A table with blanks, or without a header: "bytes,seconds". Other files may look like it, so only
/// files that are given as measured times are asked.
bool is_plain_table(std::string_view head);
CollectiveLog read_collective_table(trace::InputFile& input, const CollectiveLogOptions& options);

// What launchers, schedulers and log collectors write before the lines of a program.

/// The line without its labels, however many. Labels are "[1,0]<stdout>:" (mpirun), "0: " (srun
/// -l), "[0] " (hydra), "(head, rank=0, pid=7) " (Ray), "node1: " (pdsh) and "name-1 | " (compose).
/// Time stamps are labels, too, and so are the words between a time stamp and a name with a colon.
/// A number is never taken for a label, since it may be the first cell of a row.
std::string_view without_label(std::string_view line);
/// Launchers that label every write of a program label the parts of a row, too: "[0] 1024 256
/// float[0] 12.5". The line without its label, and with a blank for each repetition of it in
/// brackets.
std::string without_repeated_label(std::string_view line);

// The words and conventions that logs of collective benchmarks share.

/// Lower case without the marks that differ between spellings: '_', '-' and blanks.
std::string plain_word(std::string_view text);
std::vector<std::string_view> words_of(std::string_view line);
/// Takes off the first line of a text. Without its line end.
std::string_view take_line(std::string_view& text);
/// Whether the word is one of `names`, which single blanks divide.
bool is_among(std::string_view word, std::string_view names);
std::string replaced(std::string_view text, std::string_view what, std::string_view with);
/// The line with plain blanks for non-breaking ones (U+00A0).
std::string plain_blanks(std::string_view line);
/// For messages: `line 7: "1048576 abc"`, shortened.
std::string quoted_line(std::size_t number, std::string_view line);
/// The whole word as a number; "1.2e+06" and "12.00" included, "N/A" and "nan" not.
std::optional<double> number_of(std::string_view word);
/// "float", "ncclFloat32", "MPI_CHAR", "half", "bfloat16", "Float" ... nullopt when unknown.
std::optional<DType> dtype_of_log(std::string_view name);
/// The rank count that holds: the log's, else the caller's, else 0. Throws InputError when they
/// contradict.
int settle_ranks(const std::string& name, std::optional<int> from_log,
                 std::optional<int> from_caller);
/// --ranks contradicts what was found: "2", "14 to 19".
[[noreturn]] void refuse_ranks(const std::string& name, int asked, const std::string& found);

}  // namespace linerate::bench_logs
