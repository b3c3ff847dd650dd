// What every log of a collective benchmark becomes.
// Thread safety: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "linerate/core/dtype.hpp"

namespace linerate::bench_logs {

/// One row of a log: what one collective of one size took.
struct CollectiveSample {
  Collective collective = Collective::all_reduce;  // which one
  int ranks = 0;                                   // 0: neither the log nor the caller says
  int ranks_per_node = 0;                          // 0: the log does not list the hosts
  DType dtype = DType::f32;                        // element type
  bool says_type = true;                           // false: f32 for want of anything else
  bool in_place = false;                           // input and output are the same memory
  std::int64_t bytes = 0;        // S of core/dtype.hpp, whatever the log's own convention
  double seconds = 0;            // mean over repetitions, > 0
  double low_s = 0, high_s = 0;  // least and largest repetition if the log has them, else 0
};

/// What was read from one log.
struct CollectiveLog {
  std::string source;  // its file
  std::string format;  // "nccl-tests", "nccl-tests JSON", "OSU", "DeepSpeed", "table"
  std::vector<CollectiveSample> rows = {};  // in the log's order
  std::vector<std::string> notes = {};      // rows refused, assumptions made
  std::string unread = {};                  // that of them about rows refused; empty: none

  /// Adds a note that begins with the source.
  void note(const std::string& text) { notes.push_back(source + ": " + text); }
};

/// What the log may leave open; a contradiction with the log is an error.
struct CollectiveLogOptions {
  std::optional<int> ranks = {};              // of the job
  std::optional<Collective> collective = {};  // of every row
};

}  // namespace linerate::bench_logs
