#include "linerate/zoo/data_order.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/core/rng.hpp"

namespace linerate::zoo {

// Every rank shuffles for itself with random numbers keyed by (seed, epoch), and all get the same
// order. Nothing is sent, and a resumed run needs no saved generator.
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch,
                                      std::int64_t samples) {
  std::vector<std::int64_t> order(to_index(samples));
  std::iota(order.begin(), order.end(), 0);
  const std::uint64_t key = random_key(seed, static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order.size(); i > 1; --i)  // Fisher and Yates
    std::swap(order[i - 1], order[random_below(key, i, i)]);
  return order;
}

// With 100 samples, a global batch of 32 and 4 ranks there are 3 full steps and one of 4 samples.
// With 98 samples the last 2 are dropped, since two ranks would have none.
std::int64_t EpochPlan::steps() const {
  const std::int64_t full = samples / global_batch, left = samples % global_batch;
  return full + (left >= ranks ? 1 : 0);
}

Range EpochPlan::step(std::int64_t index) const {
  return {index * global_batch, std::min((index + 1) * global_batch, samples)};
}

Range EpochPlan::share(std::int64_t index, int rank) const {
  return share_of(step(index), rank, ranks);
}

// 10 samples on 3 ranks are [0, 3), [3, 6) and [6, 10).
Range share_of(Range whole, int rank, int ranks) {
  return {whole.begin + whole.size() * rank / ranks,
          whole.begin + whole.size() * (rank + 1) / ranks};
}

}  // namespace linerate::zoo
