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

enum class Role : std::uint8_t {
  fp32,         // the uncompressed exchange with its best bucket size
  sixteen_bit,  // the same on a 16-bit wire
  repeat,       // fp32 once more under another name: A/A
  candidate
};
[[nodiscard]] std::string_view name_of(Role role);

/// Steps that took turns with those of every other run of the setup. Seconds and bytes of one step;
/// medians over the steps and means over ranks unless said otherwise.
struct TimedRun {
  std::string strategy;  // canonical text
  Role role = Role::candidate;
  std::vector<double> round_step_s;  // [rounds]; round r took turns with round r of the other runs
  double encode_s = 0, decode_s = 0;
  double communication_s = 0;  // union of the network's tasks, waiting for other ranks included
  double exposed_s = 0;        // of it: doc/exposed_communication.hpp
  double sent_bytes = 0;       // by a rank, counted by the communicator, payloads only
  bool is_summable = true;     // ranks add payloads instead of gathering them
  std::vector<std::string> options;  // the hyper-parameters that its compressor has
};

/// What limited a training: as many steps as the others, or the time that fp32 took for them.
enum class Budget : std::uint8_t { steps, time };
[[nodiscard]] std::string_view name_of(Budget budget);

struct AccuracyPoint {
  std::int64_t step = 0;
  double train_s = 0;  // of this run's own steps, without tests
  double test_loss = 0;
  double test_accuracy = 0;  // 0 to 1
};

struct TrainedRun {
  std::string strategy;
  Role role = Role::candidate;
  Budget budget = Budget::steps;
  std::uint64_t seed = 1;
  double learning_rate = 0;
  std::int64_t steps = 0;             // asked for
  std::vector<AccuracyPoint> points;  // ascending steps; the last at the end, unless it diverged
  std::string diverged;               // why it ended early; empty: it did not
};

inline constexpr std::string_view kMeasured = "measured";
inline constexpr std::string_view kRehearsed = "rehearsed";

/// One model on one network with as many ranks.
struct Setup {
  std::string model;
  std::string input;  // "1x28x28"; empty: the model's own
  std::string data;
  std::int64_t batch = 0;  // per rank; 0: unknown
  int ranks = 1;
  std::string transport;  // "thread", "mpi"
  std::string network;    // a name, for people: "host", "1.00 Gbit/s"
  std::optional<double> line_rate_bytes_per_s;
  std::string mode = std::string(kMeasured);
  std::vector<TimedRun> timed;
  std::vector<TrainedRun> trained;
  std::optional<double> target_accuracy;  // as asked for; absent: by the rule of docs/evaluate.md
  std::vector<std::string> notes;
};

/// Schema 1.
struct Evaluation {
  std::vector<Setup> setups;
};

/// What tells a setup from another: "lenet 1x28x28 fashion-mnist, batch 32, 2 ranks, host".
[[nodiscard]] std::string title_of(const Setup& setup);

[[nodiscard]] std::string to_json(const Evaluation&);
/// Throws InputError with file, place, expected and found.
[[nodiscard]] Evaluation evaluation_from_json(const std::string& text, const std::string& place);
[[nodiscard]] Evaluation load_evaluation(const std::filesystem::path&);
void save(const Evaluation&, const std::filesystem::path&);

}  // namespace linerate::doc
