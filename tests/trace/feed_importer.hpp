// One input through every importer that its content selects, and on to the verdict: what fuzzing
// and mutation share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/per_gradient/per_gradient.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// Stands between the files of one job in one input.
inline const std::string kNextFile = "\n%%next file%%\n";

inline std::vector<InputFile> files_of(const std::string& content) {
  std::vector<InputFile> inputs;
  for (std::size_t at = 0; at <= content.size() && inputs.size() < 8;) {
    const std::size_t end = std::min(content.find(kNextFile, at), content.size());
    inputs.push_back(input_of(content.substr(at, end - at),
                              inputs.empty() && end == content.size()
                                  ? "fuzz"
                                  : "fuzz.rank" + std::to_string(inputs.size()) + ".json"));
    at = end + kNextFile.size();
  }
  return inputs;
}

inline void require_sound(const Breakdown& b, const Verdict& v) {
  for (const double x : {b.whole.compute_s, b.whole.communication_s, b.whole.overlap_s,
                         b.whole.exposed_s, v.idle_share})
    require(std::isfinite(x) && x >= 0, "busy times are finite and not negative");
  for (const CollectiveRow& c : b.collectives) {
    require((!c.exposed_s || *c.exposed_s >= 0) && c.duration_s >= 0,
            "no collective lasts less than nothing");
    require(!c.bytes || *c.bytes >= 0, "unknown sizes are null");
    require(!c.busbw_bytes_per_s || std::isfinite(*c.busbw_bytes_per_s), "bandwidths are finite");
  }
  // No silent zero: where nothing was found, something is said about it.
  const bool nothing = b.whole.compute_s == 0 && b.whole.communication_s == 0;
  require(!nothing || !b.notes.empty() || b.has_device, "an empty result comes with a note");
  require(!explain_json(b, v).empty() && !explain_text(b, v).empty(), "something is printed");
}

/// What import makes of a job: a Workload or a message, and a Timeline that reads like the job.
inline void feed_import(const Job& job) {
  const Breakdown again = break_down(job_of(timeline_of(job, "fuzz")));
  require_sound(again, judge(again));
  std::vector<std::string> said;
  try {
    const doc::Workload w = workload_of(job, "fuzz", said);
    require(!w.gradients.empty() && std::isfinite(w.backward_s) && w.backward_s >= 0,
            "a Workload has gradients and a time");
  } catch (const InputError&) {
  }
}

/// Tables of bytes and seconds are not told by content: --add-cost names them.
inline void feed_add_cost(const std::string& content) {
  try {
    InputFile input = InputFile::from_memory(content.substr(0, 10'000), "fuzz");
    require(!read_add_cost(input).empty(), "a table that was read has rows");
  } catch (const InputError&) {
  }
}

/// True when the input was read; false when it was refused with a message. Anything else aborts.
inline bool feed_importer(const std::string& content) {
  try {
    feed_add_cost(content);
    std::vector<InputFile> inputs = files_of(content);
    InputFile& first = inputs.front();
    const Importer& importer = *recognise(first.head()).importer;
    if (inputs.size() == 1 && importer.read_workload != nullptr) {
      const doc::Workload w = importer.read_workload(first, {});
      require(!w.gradients.empty() && std::isfinite(w.backward_s),
              "a log that was read has gradients and a time");
      return true;
    }
    if (inputs.size() == 1 && importer.name == "benchmark log") {
      const bench_logs::CollectiveLog log = bench_logs::read_collective_log(first, {.ranks = {}});
      require(!log.rows.empty(), "a log that was read has rows");
      for (const bench_logs::CollectiveSample& r : log.rows)
        require(r.seconds > 0 && r.bytes >= 0, "no row of zero time");
      return true;
    }
    const Job job = read_job(inputs);
    const Breakdown b = break_down(job);
    require_sound(b, judge(b));
    feed_import(job);
    return true;
  } catch (const Error& e) {
    require(e.exit_code() == 2 || e.exit_code() == 3, "bad input is an InputError");
    require(*e.what() != 0, "a message");
    return false;
  }
}

}  // namespace linerate::trace
