// The outcome of a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace linerate::torch_adapter {

/// A stretch in which an operator, or settle(), waited for an update of the last step. It waited
/// for the gradients until `update_ns`, then for the optimizer (steady clock).
struct HeldSpan {
  std::int64_t start_ns = 0, update_ns = 0, end_ns = 0;  // steady clock
};

/// A stretch of a forward or backward pass in which a hook added to a factor of K-FAC.
struct FactorSpan {
  std::int32_t factor = 0;                // doc::factor_index()
  std::int64_t start_ns = 0, end_ns = 0;  // steady clock
};

/// The report of finish(), skip_step() or step() on this rank.
struct StepReport {
  std::string variant;  // of the plan
  /// Exposed communication in seconds: from the call until every gradient was there. If step() lets
  /// gradients follow, it is the time until the step's end was agreed on, plus the waits of the
  /// last forward pass.
  double exposed_s = 0;
  double copy_s = 0;          // in hooks: gradients made ready for their buckets
  std::int64_t bytes = 0;     // exchanged, in the wire's element types
  int unused_here = 0;        // parameters without a gradient on this rank
  int unused_everywhere = 0;  // on every rank: their .grad was left as it was
  int rounds = 0;             // exchanges: above 1 if gradients changed after they were sent
  /// The strategy compresses, and on some rank a gradient held an infinity, a NaN or a magnitude
  /// above 2^64 (exec::kGreatestGradient). It makes no difference if that gradient is encoded or
  /// travels dense. The step was skipped on all ranks, and no .grad is defined.
  bool infinite = false;
  /// Steps are enqueued (DataParallelOptions::device_group) under a compressor or K-FAC, and an
  /// earlier one would be `infinite` elsewhere. All its means were taken for zero on all ranks, and
  /// the step counted.
  bool late_infinite = false;
  std::int64_t host_waits = 0;      // how often the host waited for the device in this step
  std::vector<HeldSpan> held;       // since the report before
  std::vector<FactorSpan> factors;  // likewise
};

}  // namespace linerate::torch_adapter
