#include "linerate/trace/explain/program.hpp"

#include <numeric>

namespace linerate::trace {

std::int64_t OwnTime::idle_ns() const {
  return std::accumulate(idle.begin(), idle.end(), std::int64_t{0});
}
std::int64_t OwnTime::total_ns() const {
  return idle_ns() + std::accumulate(work.begin(), work.end(), std::int64_t{0});
}
OwnTime& OwnTime::operator+=(const OwnTime& other) {
  exchange += other.exchange, exchange_idle += other.exchange_idle;
  for (std::size_t i = 0; i < kPhases; ++i) work[i] += other.work[i], idle[i] += other.idle[i];
  return *this;
}

}  // namespace linerate::trace
