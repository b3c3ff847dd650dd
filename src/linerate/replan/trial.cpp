#include "linerate/replan/trial.hpp"

#include "linerate/core/statistics.hpp"

namespace linerate::replan {
namespace {

double mean_or_zero(const std::vector<double>& medians) {
  return medians.empty() ? 0 : mean(medians);
}

}  // namespace

// An example with 5 counted steps: a block has 6 steps, and the first one is not counted. After 24
// steps ddp and the strategy have two blocks each, in turn: ddp, strategy, ddp, strategy.
bool Trial::add(double step_s) {
  if (steps_++ > 0 && step_s >= 0) block_.push_back(step_s);
  if (steps_ <= counted_) return false;
  if (!block_.empty()) (of_ddp() ? ddp_ : other_).push_back(median(block_));
  block_.clear();
  steps_ = 0;
  ++blocks_;
  return true;
}

TrialResult Trial::agree(comm::Communicator& communicator) const {
  std::vector<double> seconds{mean_or_zero(ddp_), mean_or_zero(other_)};
  communicator.all_reduce(comm::buffer(seconds), comm::Reduce::sum, "steps of a trial")->wait();
  return {seconds[0] / communicator.size(), seconds[1] / communicator.size()};
}

}  // namespace linerate::replan
