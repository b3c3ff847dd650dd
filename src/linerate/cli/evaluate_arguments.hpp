// The options of linerate evaluate: one list for the program that rehearses and the one that
// trains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "linerate/core/units.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/evaluate/run/contest.hpp"

namespace CLI {
class App;
}

namespace linerate::cli {

struct EvaluateArguments {
  // What is trained.
  std::string models, data = "synthetic", data_folder, input, batches = "64";
  std::optional<std::int64_t> samples, train_samples, test_samples;
  std::string optimizer = "sgd", schedule = "constant";
  std::optional<double> rate, momentum, weight_decay;
  std::vector<std::string> rates;
  bool flip = false;
  std::uint64_t seed = 1;
  int threads = 0;
  // What is compared.
  evaluate::ContestOptions contest;
  std::string compressors;
  int seeds = 3;
  std::int64_t steps = 300;
  std::optional<std::int64_t> test_every;
  std::optional<double> target_accuracy;
  bool no_equal_time = false;
  // Where.
  std::string network, bandwidth, timeout = "300s";
  std::optional<int> ranks;
  bool rehearse = false;
  std::string workload, step_time, scale, cluster;
  std::string output;
  bool append = false, json = false;
};

void add_evaluate_options(CLI::App& verb, EvaluateArguments& arguments);
/// Throws UsageError for what does not go together.
void check_together(const EvaluateArguments& arguments);

evaluate::ContestOptions contest_of(const EvaluateArguments& arguments);
std::optional<BytesPerSecond> line_rate_of(const EvaluateArguments& arguments);
/// The name given, else the line rate, else "host".
std::string network_of(const EvaluateArguments& arguments);
/// All setups as text or JSON.
void print(const doc::Evaluation& evaluation, const EvaluateArguments& arguments);

}  // namespace linerate::cli
