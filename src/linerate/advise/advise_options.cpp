#include "linerate/advise/advise_options.hpp"

#include <algorithm>

namespace linerate::advise {

void Progress::expect(std::size_t runs) { total_ += runs; }

void Progress::did_one() {
  const std::lock_guard lock(mutex_);
  ++done_;
  total_ = std::max(total_, done_);
  if (on_progress_) on_progress_(done_, total_);
}

// An example: 500 runs were expected, 120 are done, and a stage that might have taken 200 runs
// needed 60. The other 140 are spared, so 360 are expected in all.
void Progress::spare(std::size_t runs) {
  const std::lock_guard lock(mutex_);
  total_ = std::max(done_, total_ - std::min(runs, total_));
  if (on_progress_) on_progress_(done_, total_);
}

Stage::~Stage() {
  const std::size_t did = progress_.done() - begin_;
  if (did < most_) progress_.spare(most_ - did);
}

}  // namespace linerate::advise
