// Logs of collective benchmarks and tables of one's own timings become rows of (collective, ranks,
// dtype, bytes, seconds). The readers know nccl-tests of every era as text and JSON, OSU
// micro-benchmarks, and the summary of DeepSpeed's logger. Sizes of all formats are converted to
// one convention, S of core/collective.hpp.
#pragma once

#include <filesystem>
#include <string_view>

#include "linerate/bench_logs/collective_sample.hpp"
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

}  // namespace linerate::bench_logs
