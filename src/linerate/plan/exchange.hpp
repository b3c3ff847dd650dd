// What compression carries from step to step, as far as a Plan says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/registry.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/codec.hpp"

namespace linerate::plan {

/// Bytes that every rank keeps from step to step for what this task encodes. 0 if it encodes
/// nothing, casts, or is a later round of the same tensors. A compressor says its bytes tensor by
/// tensor. A generic codec is taken to keep one copy of the dense values.
std::int64_t kept_bytes(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task);

// A Plan without the last parts of its steps, as if they took no time.

/// What a task is there for.
doc::StepPart part_of(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task);

/// The Plan with the tasks of parts up to `last` alone. A task that waited for a lost task waits
/// for what that one waited for. Payloads and order stay, so nothing is fused or placed anew. The
/// result can be simulated but not executed.
doc::Plan up_to(const doc::Plan& plan, doc::StepPart last);

// What others ask about a strategy before it plans anything.

/// What the plan depends on in a measured step; each includes the ones before it.
enum class PlansBy { nothing, order, times, cost };
std::string_view name_of(PlansBy by);

/// Which interpreters of a Plan can carry a strategy out. Every one can be simulated and rehearsed.
struct Runs {
  bool train = true;

  std::vector<std::string_view> names() const;
};

struct Traits {
  PlansBy plans_by = PlansBy::nothing;
  bool changes_convergence = false;  // its steps differ from the uncompressed ones
  bool needs_summable = false;       // works on payloads that can be summed alone
  Runs runs = {};
  std::string_view why_not_train = {};  // if it cannot
};

// How gradients leave the rank: all that exchanges decide.

struct FusionInput {
  const doc::Workload& workload;
  const cost::CostModel& cost;
  const WireForm& form;
  int ranks = 1;
  bool first_step = false;  // before any ready order was seen
};

/// The buckets in the order in which they are sent, appended to the graph's `payloads` and
/// `members` (positions in ready order).
struct Fusion {
  doc::TaskGraph& graph;
  /// For each bucket, seconds since the start of backward before which it is not sent. Empty: a
  /// bucket leaves as soon as it is ready.
  std::vector<double>& not_before;
};

/// Positions of the gradients in a bucket.
inline std::span<const std::int32_t> members_of(const doc::TaskGraph& graph,
                                                const doc::Payload& bucket) {
  return {graph.members.data() + bucket.begin, graph.members.data() + bucket.end};
}

/// When exchanges run.
enum class Schedule {
  overlapped,  // as soon as a bucket is ready; the optimizer waits for all of them
  at_the_end,  // after the whole backward pass
  decoupled,   // reduce-scatter under backward, all-gather under the next forward (DeAR)
};

/// One exchange strategy with its options. Pure: the same input gives the same buckets.
class Exchange {
 public:
  /// `wire`: the type in which it sends gradients; absent: their own.
  explicit Exchange(std::optional<DType> wire) : wire_(wire) {}
  virtual ~Exchange() = default;
  virtual void fuse(const FusionInput& input, const Fusion& out) const = 0;
  virtual Schedule schedule() const { return Schedule::overlapped; }
  std::optional<DType> wire() const { return wire_; }
  /// The size of a bucket, if size alone closes buckets and they leave as soon as they are full.
  virtual std::optional<std::int64_t> bucket_bytes() const { return std::nullopt; }
  /// Sentences for people on when its plans are known not to be exact.
  virtual std::vector<std::string> caveats(bool /*encodes*/, bool /*contends*/) const { return {}; }

 private:
  std::optional<DType> wire_;
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

// The strategies by name, as `linerate list strategies` prints them, and their traits. Nothing
// outside this registry compares a strategy's name.

const Registry<ExchangeEntry>& exchanges();

/// What may follow an exchange after '+'.
enum class Extra { codec, compressor, automatic, curvature };
struct ExtraEntry {
  Extra extra;
  Traits traits;
};
/// K-FAC, the codec that its numbers alone describe, then the compressors, the user's own included.
const Registry<ExtraEntry>& extras();
/// The name of Extra::codec.
inline constexpr std::string_view kCodec = "codec";
/// The name of Extra::automatic.
inline constexpr std::string_view kAuto = "auto";
/// The name of Extra::curvature.
inline constexpr std::string_view kKfac = "kfac";
/// Whether a component after '+' is this one.
bool is(const doc::Component& component, Extra extra);

}  // namespace linerate::plan
