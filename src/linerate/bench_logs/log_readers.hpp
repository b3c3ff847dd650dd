// Private: the readers of collective_log.hpp, one per format.
#pragma once

#include <string_view>

#include "linerate/bench_logs/collective_sample.hpp"
#include "linerate/trace/input/input_file.hpp"

namespace linerate::bench_logs {

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

}  // namespace linerate::bench_logs
