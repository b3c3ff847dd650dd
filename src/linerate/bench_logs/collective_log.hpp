// Logs of collective benchmarks (nccl-tests text of every era and JSON, OSU micro-benchmarks) and
// tables of one's own timings become rows of (collective, ranks, dtype, bytes, seconds), all in one
// size convention.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/collective.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/trace/input/input.hpp"

namespace linerate::bench_logs {

struct CollectiveSample {
  Collective collective = Collective::all_reduce;
  int ranks = 0;           // 0: neither the log nor the caller says
  int ranks_per_node = 0;  // 0: the log does not list the hosts
  DType dtype = DType::f32;
  bool in_place = false;
  std::int64_t bytes = 0;        // S of core/collective.hpp, whatever the log's own convention
  double seconds = 0;            // mean over repetitions, > 0
  double low_s = 0, high_s = 0;  // least and largest repetition where the log has them, else 0
};

struct CollectiveLog {
  std::string source;
  std::string format;  // "nccl-tests", "nccl-tests JSON", "OSU", "table"
  std::vector<CollectiveSample> rows = {};
  std::vector<std::string> notes = {};  // rows refused, assumptions made

  void note(std::string_view text);  // led by the source
};

/// What the log may leave open; a contradiction with the log is an error.
struct CollectiveLogOptions {
  std::optional<int> ranks = {};
  std::optional<Collective> collective = {};
};

/// By the first bytes (Input::head).
bool is_collective_log(std::string_view head);
/// Of nccl-tests' JSON alone.
bool is_nccl_tests_json(std::string_view head);
/// Throws InputError when no row can be read, when --ranks contradicts the log, or when a size
/// cannot be normalised without a rank count that is not there.
CollectiveLog read_collective_log(trace::Input& input, const CollectiveLogOptions& options = {});
CollectiveLog load_collective_log(const std::filesystem::path& path,
                                  const CollectiveLogOptions& options = {});

}  // namespace linerate::bench_logs
