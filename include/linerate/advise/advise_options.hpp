// What a strategy does to the number of steps until a target is reached.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/core/units.hpp"
#include "linerate/doc/advice.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::advise {

/// steps(strategy) / steps(uncompressed) until the same target, for every strategy that has the
/// key's components and at least its options: codec(ratio=8) holds for ddp+codec(ratio=8,
/// encode=10GB/s).
struct StepsToTarget {
  doc::Strategy key;      // only the exchange when `anywhere`
  bool anywhere = false;  // the key is one component, after any exchange
  doc::Bounded ratio;     // of steps, with its interval
  int missed = 0;         // runs that did not reach the target
  std::string source;     // "given" or the results file
};

/// "codec(ratio=8)=1.1[1.05,1.2]" or "ddp(wire=fp16)=1". Throws UsageError.
[[nodiscard]] StepsToTarget parse_steps_to_target(std::string_view text);

/// The results file, docs/advise.md, or an Evaluation: evaluate/steps_ratio.hpp. What several
/// setups of an Evaluation say of one compressor becomes the median of their ratios, with an
/// interval that holds all of theirs. Throws InputError.
[[nodiscard]] std::vector<StepsToTarget> steps_to_target_from_json(const std::string& text,
                                                                   const std::string& place);

/// Either of the two: a text that ends in .json names a results file.
[[nodiscard]] std::vector<StepsToTarget> read_steps_to_target(const std::string& text);

/// The entry that fits with the most options named, or nullptr.
[[nodiscard]] const StepsToTarget* find_steps(const std::vector<StepsToTarget>& known,
                                              const doc::Strategy& strategy);

/// Keys of entries that fit none of the strategies.
[[nodiscard]] std::vector<std::string> keys_without(const std::vector<StepsToTarget>& known,
                                                    const std::vector<doc::Strategy>& strategies);

// How much of advise()'s work is done.

/// Strategies planned and simulated, and how many that will be at most. A search that ends early
/// lowers `total`, and both are equal in the end. `done` is never above it. Calls never overlap,
/// but may come from several threads.
using OnProgress = std::function<void(std::size_t done, std::size_t total)>;

/// Counts for OnProgress.
/// Thread safety: any thread.
class Progress {
 public:
  /// Tells `on_progress`; an empty one is told nothing.
  explicit Progress(OnProgress on_progress) : on_progress_(std::move(on_progress)) {}

  /// From now on so many runs are to come at most.
  void expect(std::size_t runs);
  /// One of the runs expected is done.
  void did_one();

 private:
  OnProgress on_progress_;
  std::mutex mutex_;
  std::size_t done_ = 0, total_ = 0;
};

// What is asked of advise().

/// Whose strategies are candidates, and in whose words they are named. These are all of linerate's,
/// or what PyTorch's DistributedDataParallel, its communication hooks and its options can do.
enum class Framework { linerate, pytorch };
/// "pytorch". Throws UsageError, which says what is known.
[[nodiscard]] Framework parse_framework(const std::string& text);

/// What advise() is to look for, and what it may assume.
struct AdviseOptions {
  int ranks = 0;                            // 0: the Cluster's
  std::optional<BytesPerSecond> bandwidth;  // absent: the Cluster's
  std::optional<Seconds> latency;  // of the network, per message step; absent: the Cluster's
  doc::Strategy current = doc::parse_strategy("ddp");  // the strategy in use
  bool current_is_known = true;                        // false: a guess, since nothing says which
  Framework framework = Framework::linerate;           // restricts the search
  std::vector<doc::Component> codecs;                  // codec(ratio=8, encode=10GB/s, ...)
  std::vector<doc::Strategy> more;                     // considered besides the search space
  // Their exchanges are not considered: this very job has tried them and found them slower.
  std::vector<doc::Strategy> refuted;
  std::optional<double> memory_bytes;  // for the exchange, per rank; absent: the Cluster's
  std::vector<StepsToTarget> steps;    // what strategies that change convergence cost in steps
  double least_gain = 0.02;            // of the step: less is not worth a change
  OnProgress on_progress = {};         // called while it works; empty: not
};

}  // namespace linerate::advise
