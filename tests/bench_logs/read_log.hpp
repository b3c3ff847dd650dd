// A log or table of collectives from a text, and what is said where there is none.
#pragma once

#include <fmt/format.h>

#include <string>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/error.hpp"

namespace linerate::bench_logs {

inline CollectiveLog read(const std::string& text, const CollectiveLogOptions& options = {},
                          const std::string& name = "bench.log") {
  trace::InputFile input = trace::InputFile::from_memory(text, name);
  return read_collective_log(input, options);
}

inline std::string refusal(const std::string& text, const CollectiveLogOptions& options = {}) {
  try {
    read(text, options);
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

/// A line of each row: collective, ranks, bytes, us. Then what is not usual: "/4" ranks a node, the
/// type, "untyped", the least and the largest repetition, "in place".
inline std::string rows_of(const CollectiveLog& log) {
  std::string all;
  for (const CollectiveSample& row : log.rows) {
    all += fmt::format("{} {} {} {:g}", name_of(row.collective), row.ranks, row.bytes,
                       row.seconds * 1e6);
    if (row.ranks_per_node > 0) all += fmt::format(" /{}", row.ranks_per_node);
    if (row.dtype != DType::f32) all += fmt::format(" {}", name_of(row.dtype));
    if (!row.says_type) all += " untyped";
    if (row.low_s > 0) all += fmt::format(" {:g}..{:g}", row.low_s * 1e6, row.high_s * 1e6);
    all += row.in_place ? " in place\n" : "\n";
  }
  return all;
}

}  // namespace linerate::bench_logs
