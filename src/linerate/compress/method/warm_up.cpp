#include "linerate/compress/method/warm_up.hpp"

#include <fmt/format.h>

namespace linerate::compress {

std::int64_t read_warm_up(doc::OptionReader& options, std::string_view key) {
  const std::int64_t steps = options.integer(key, 0);
  if (steps < 0) options.refuse(key, "0 or more steps");
  return steps;
}

std::vector<Phase> dense_warm_up(std::int64_t steps) {
  if (steps == 0) return {};
  return {{"dense", steps}};
}

}  // namespace linerate::compress
