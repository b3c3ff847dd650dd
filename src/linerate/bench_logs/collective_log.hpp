// Logs of collective benchmarks (nccl-tests text of every era and JSON, OSU micro-benchmarks) and
// tables of one's own timings become rows of (collective, ranks, dtype, bytes, seconds), all in one
// size convention.
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
/// Throws InputError when no row can be read, when --ranks contradicts the log, or when a size
/// cannot be normalised without a rank count that is not there.
CollectiveLog read_collective_log(trace::InputFile& input,
                                  const CollectiveLogOptions& options = {});
CollectiveLog load_collective_log(const std::filesystem::path& path,
                                  const CollectiveLogOptions& options = {});

}  // namespace linerate::bench_logs
