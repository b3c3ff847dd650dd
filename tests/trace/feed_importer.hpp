// One input through every importer that its content selects, and on to the verdict: what fuzzing
// and mutation share.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "linerate/core/error.hpp"
#include "linerate/trace/collective_log.hpp"
#include "linerate/trace/explain_json.hpp"
#include "linerate/trace/load.hpp"
#include "linerate/trace/per_gradient.hpp"

namespace linerate::trace {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// True when the input was read; false when it was refused with a message. Anything else aborts.
inline bool feed_importer(std::string content) {
  try {
    Input input = Input::from_memory(std::move(content), "fuzz");
    switch (format_of(input.head())) {
      case Format::per_gradient: {
        const doc::Workload w = read_per_gradient_log(input);
        require(!w.gradients.empty() && std::isfinite(w.backward_s),
                "a log that was read has gradients and a time");
        return true;
      }
      case Format::collective_log: {
        const CollectiveLog log = read_collective_log(input, {.ranks = {}});
        require(!log.rows.empty(), "a log that was read has rows");
        for (const CollectiveSample& r : log.rows)
          require(r.seconds > 0 && r.bytes >= 0, "no row of zero time");
        return true;
      }
      default:
        break;
    }
    const Job job = read_job(input);
    const Breakdown b = break_down(job);
    const Verdict v = judge(b);
    for (const double x : {b.whole.compute_s, b.whole.communication_s, b.whole.overlap_s,
                           b.whole.exposed_s, v.idle_share})
      require(std::isfinite(x) && x >= 0, "busy times are finite and not negative");
    // No silent zero: where nothing was found, something is said about it.
    const bool nothing = b.whole.compute_s == 0 && b.whole.communication_s == 0;
    require(!nothing || !b.notes.empty() || b.has_device, "an empty result comes with a note");
    require(!explain_json(b, v).empty(), "JSON");
    return true;
  } catch (const Error& e) {
    require(e.exit_code() == 2 || e.exit_code() == 3, "bad input is an InputError");
    require(*e.what() != 0, "a message");
    return false;
  }
}

}  // namespace linerate::trace
