#include "linerate/advise/advise_options.hpp"

#include <algorithm>

namespace linerate::advise {

void Progress::did_one() {
  const std::lock_guard lock(mutex_);
  ++done_;
  total_ = std::max(total_, done_);
  if (on_progress_) on_progress_(done_, total_);
}

// An example: 500 runs were expected and 120 are done when a part ends that needed 60 of 200 runs.
// The parts after it take 240 at most, so 360 are expected in all.
void Progress::expect(std::size_t runs) {
  const std::lock_guard lock(mutex_);
  total_ = done_ + runs;
  if (done_ > 0 && on_progress_) on_progress_(done_, total_);
}

}  // namespace linerate::advise
