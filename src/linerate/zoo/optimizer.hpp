// LibTorch's optimizers with their state in the open: named tensors that a checkpoint saves and a
// measurement restores.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linerate/zoo/train.hpp"

namespace torch::optim {
class Optimizer;
}

namespace linerate::zoo {

class Optimizer {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;

  /// "sgd" has Nesterov's momentum; "adam". Throws UsageError for an unknown name.
  Optimizer(const TrainOptions& options, Named parameters);
  ~Optimizer();

  /// LibTorch's own, at this learning rate from now on.
  torch::optim::Optimizer& at_rate(double learning_rate);
  /// Drops the gradients (set to none, so the next backward writes instead of adding).
  void zero_grad();
  /// Momenta and counters by name ("momentum.fc1.weight"); empty before the first step. The tensors
  /// are the live ones.
  Named state() const;
  /// Takes copies. Throws InputError for a name or shape that does not fit; `place` names the file.
  void load_state(const Named& state, const std::string& place);

 private:
  const std::string name_;
  const Named parameters_;
  std::unique_ptr<torch::optim::Optimizer> torch_;
};

// The learning rate over a run.

/// Learning rate over a run.
struct RateSchedule {
  std::string name = "one-cycle";  // "constant", "cosine", "one-cycle"
  double rate = 0.05;              // the largest
  std::int64_t steps = 1;          // of the whole run

  /// one-cycle: linear from rate/10 up over the first quarter, then along a cosine down to
  /// rate/1000 (after Smith 2018); cosine: from rate to 0.
  double at(std::int64_t step) const;
};
/// Their names.
const std::vector<std::string>& schedules();
/// Throws UsageError for an unknown name.
void check_schedule(const std::string& name);

}  // namespace linerate::zoo
