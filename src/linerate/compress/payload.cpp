#include "linerate/compress/payload.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"

namespace linerate::compress {

std::vector<Round> one_round_if_smaller(const Shape& shape, Round round) {
  if (round.bytes >= 4 * shape.elements) return {};
  return {round};
}

void check_sizes(const Arrived& arrived, std::size_t payloads, std::size_t bytes,
                 std::string_view method) {
  if (arrived.payloads.size() != payloads)
    throw InputError(fmt::format("{}: expected {} payloads, found {}", method, payloads,
                                 arrived.payloads.size()));
  for (std::size_t p = 0; p < payloads; ++p)
    if (arrived.payloads[p].size() != bytes)
      refuse_payload(method, p,
                     fmt::format("expected {} bytes, found {}", bytes, arrived.payloads[p].size()));
}

void refuse_payload(std::string_view method, std::size_t payload, std::string_view why) {
  throw InputError(fmt::format("{}: payload {}: {}", method, payload, why));
}

}  // namespace linerate::compress
