// How gradients leave the rank: all that exchanges decide.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/registry.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/traits.hpp"
#include "linerate/plan/wire_form.hpp"

namespace linerate::plan {

/// What an exchange derives from a Workload alone, once for all Plans of a series.
struct PreparedWorkload {
  virtual ~PreparedWorkload() = default;
};

struct FusionInput {
  const doc::Workload& workload;
  const cost::CostModel& cost;
  const WireForm& form;
  int ranks = 1;
  const PreparedWorkload* prepared = nullptr;  // by the same exchange, of the same Workload
};

/// The buckets in the order in which they are sent, appended to the graph's `payloads` and
/// `members` (positions in ready order).
struct Fusion {
  doc::TaskGraph& graph;
  /// For each bucket, seconds since the start of backward before which it is not sent. Empty: a
  /// bucket leaves as soon as it is ready.
  std::vector<double>& not_before;
};

/// When exchanges run.
enum class Schedule {
  overlapped,  // as soon as a bucket is ready; the optimizer waits for all of them
  at_the_end,  // after the whole backward pass
  decoupled,   // reduce-scatter under backward, all-gather under the next forward (DeAR)
};

/// One exchange strategy with its options. Pure: the same input gives the same buckets.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual std::unique_ptr<const PreparedWorkload> prepare(const doc::Workload&) const {
    return nullptr;
  }
  virtual void fuse(const FusionInput& input, const Fusion& out) const = 0;
  /// Buckets of the first step, before any ready order was seen.
  virtual void fuse_first_step(const FusionInput& input, const Fusion& out) const {
    fuse(input, out);
  }
  virtual Schedule schedule() const { return Schedule::overlapped; }
  virtual std::optional<DType> wire() const { return std::nullopt; }
  /// The size of a bucket, if size alone closes buckets and they leave as soon as they are full.
  virtual std::optional<std::int64_t> bucket_bytes() const { return std::nullopt; }
  /// Sentences for people on when its plans are known not to be exact.
  virtual std::vector<std::string> caveats(bool /*encodes*/, bool /*contends*/) const { return {}; }
};

/// What `linerate advise` tries of a strategy besides its plain form.
struct Candidates {
  /// As typed inside the parentheses, "bucket=5MiB"; each is one more candidate.
  std::vector<std::string_view> options = {};
  /// Also with each codec, compressor and cast that the Cluster or --codec names.
  bool with_codecs = true;
};

/// The end of a strategy's file in exchange/, `ExchangeLine strategy_<file>()`. It says the
/// strategy's name, how options make it, its traits, what advise tries of it, a sentence and its
/// source. registry.cpp lists the files.
struct ExchangeEntry {
  std::unique_ptr<const Exchange> (*make)(const doc::Component&);
  Traits traits;
  Candidates candidates = {};
};
using ExchangeLine = RegistryLine<ExchangeEntry>;

}  // namespace linerate::plan
