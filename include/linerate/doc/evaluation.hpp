// Evaluation: what compressors did to steps and to accuracy next to tuned uncompressed baselines,
// in several setups.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace linerate::doc {

/// What a strategy is in an Evaluation.
enum class Role : std::uint8_t {
  fp32,         // the uncompressed exchange with its best bucket size
  sixteen_bit,  // the same on a 16-bit wire
  repeat,       // fp32 once more under another name: A/A
  candidate     // what is evaluated
};
[[nodiscard]] std::string_view name_of(Role role);

/// Steps that took turns with those of every other run of the setup. Seconds and bytes of one step;
/// medians over the steps and means over ranks unless said otherwise.
struct TimedRun {
  std::string strategy;               // canonical text
  Role role = Role::candidate;        // in the Evaluation
  std::vector<double> round_step_s;   // [rounds]; round r took turns with round r of the other runs
  double encode_s = 0, decode_s = 0;  // of all tensors
  double communication_s = 0;  // union of the network's tasks, waiting for other ranks included
  double exposed_s = 0;        // of it: doc/scaling_factor.hpp
  double sent_bytes = 0;       // by a rank, counted by the communicator, payloads only
  bool is_summable = true;     // ranks add payloads instead of gathering them
  std::vector<std::string> options;  // the hyper-parameters that its compressor has
};

/// What limited a training: as many steps as the others, or the time that fp32 took for them.
enum class Budget : std::uint8_t { steps, time };
[[nodiscard]] std::string_view name_of(Budget budget);

/// One test of a model in training.
struct AccuracyPoint {
  std::int64_t step = 0;     // after so many steps
  double train_s = 0;        // of this run's own steps, without tests
  double test_loss = 0;      // mean over the test set
  double test_accuracy = 0;  // 0 to 1
};

/// One training of a strategy.
struct TrainedRun {
  std::string strategy;               // canonical text
  Role role = Role::candidate;        // in the Evaluation
  Budget budget = Budget::steps;      // what ended it
  std::uint64_t seed = 1;             // of weights, data and compressor
  double learning_rate = 0;           // the largest of its schedule
  std::int64_t steps = 0;             // asked for
  std::vector<AccuracyPoint> points;  // ascending steps; the last at the end, unless it diverged
  std::string diverged;               // why it ended early; empty: it did not
};

/// Setup::mode of a setup that trained.
inline constexpr std::string_view kMeasured = "measured";
/// Setup::mode of a setup that communicated and waited instead of computing.
inline constexpr std::string_view kRehearsed = "rehearsed";

/// One model on one network with as many ranks.
struct Setup {
  std::string model;                            // its name
  std::string input;                            // "1x28x28"; empty: the model's own
  std::string data;                             // the data set's name
  std::int64_t batch = 0;                       // per rank; 0: unknown
  int ranks = 1;                                // of the job
  std::string transport;                        // "thread", "mpi"
  std::string network;                          // a name, for people: "host", "1.00 Gbit/s"
  std::optional<double> line_rate_bytes_per_s;  // per direction; absent: unknown
  std::string mode = std::string(kMeasured);    // kMeasured or kRehearsed
  std::vector<TimedRun> timed;                  // how long steps take
  std::vector<TrainedRun> trained;              // what they do to accuracy
  std::optional<double> target_accuracy;  // as asked for; absent: by the rule of docs/evaluate.md
  std::vector<std::string> notes;         // for people
};

/// Schema 1.
struct Evaluation {
  std::vector<Setup> setups;  // in the order in which they ran
};

/// What tells a setup from another: "lenet 1x28x28 fashion-mnist, batch 32, 2 ranks, host".
[[nodiscard]] std::string title_of(const Setup& setup);

[[nodiscard]] std::string to_json(const Evaluation&);
/// Throws InputError with file, place, expected and found.
[[nodiscard]] Evaluation evaluation_from_json(const std::string& text, const std::string& place);
[[nodiscard]] Evaluation load_evaluation(const std::filesystem::path&);
void save(const Evaluation&, const std::filesystem::path&);

}  // namespace linerate::doc
