// The checks of payloads and of the parts in them. A rank's payload comes from another process,
// which may be of another version or damaged. So sizes are checked before a byte is read, and the
// message names method, payload and tensor.
#include "linerate/compress/payload.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {

std::vector<Round> one_round_if_smaller(const Shape& shape, Round round) {
  if (round.bytes >= 4 * shape.elements) return {};
  return {round};
}

namespace {

void check_count(const Arrived& arrived, std::size_t payloads, std::string_view method) {
  if (arrived.payloads.size() != payloads)
    throw InputError(fmt::format("{}: expected {} payloads, found {}", method, payloads,
                                 arrived.payloads.size()));
}

void check_sizes(const Arrived& arrived, std::size_t bytes, std::string_view method) {
  for (std::size_t p = 0; p < arrived.payloads.size(); ++p)
    if (arrived.payloads[p].size() != bytes)
      refuse_payload(method, p,
                     fmt::format("expected {} bytes, found {}", bytes, arrived.payloads[p].size()));
}

}  // namespace

void check_one_a_rank(const Arrived& arrived, std::string_view method) {
  check_count(arrived, to_index(arrived.ranks), method);
}

void check_gathered(const Arrived& arrived, std::size_t bytes, std::string_view method) {
  check_one_a_rank(arrived, method);
  check_sizes(arrived, bytes, method);
}

void check_sum(const Arrived& arrived, std::size_t bytes, std::string_view method) {
  check_count(arrived, 1, method);
  check_sizes(arrived, bytes, method);
}

void refuse_payload(std::string_view method, std::size_t payload, std::string_view why) {
  throw InputError(fmt::format("{}: payload {}: {}", method, payload, why));
}

void zero_from(std::span<std::byte> payload, std::size_t used) {
  std::fill(payload.begin() + static_cast<std::ptrdiff_t>(used), payload.end(), std::byte{0});
}

void check_zero_from(std::span<const std::byte> payload, std::size_t used, std::string_view method,
                     std::size_t rank) {
  const auto behind = payload.subspan(used);
  if (std::any_of(behind.begin(), behind.end(), [](std::byte b) { return b != std::byte{0}; }))
    refuse_payload(method, rank, "bits after the last element");
}

void read_mean(const Arrived& arrived, std::span<float> mean, std::string_view method) {
  check_sum(arrived, mean.size_bytes(), method);
  std::memcpy(mean.data(), arrived.payloads[0].data(), mean.size_bytes());
  const float share = 1.0f / static_cast<float>(arrived.ranks);
  for (float& element : mean) element *= share;
}

/// The comparisons are written so that no sum can wrap around for a damaged size.
std::span<const std::byte> get_part(std::span<const std::byte> block, std::size_t& at,
                                    bool has_size, std::size_t bytes, std::string_view tensor) {
  const auto fail = [&](std::uint64_t found) {
    throw CommError(
        fmt::format("\"{}\": a rank sent {} bytes, expected at most {} of {} that are left: what "
                    "was exchanged is damaged",
                    tensor, found, bytes, block.size() - std::min(at, block.size())));
  };
  std::size_t size = bytes;
  if (has_size) {
    std::uint32_t sent = 0;
    if (at + sizeof sent > block.size()) fail(sizeof sent);
    std::memcpy(&sent, block.data() + at, sizeof sent);
    if (sent > bytes) fail(sent);
    size = sent;
    at += sizeof sent;
  }
  if (size > block.size() || at > block.size() - size) fail(size);
  const auto part = block.subspan(at, size);
  at += to_index(pad4(static_cast<std::int64_t>(size)));
  return part;
}

void check_sent(std::size_t sent, std::size_t room, bool is_bound, const Sender& sender) {
  if (sent == room || (is_bound && sent < room)) return;
  throw UsageError(fmt::format(
      "compressor {}: \"{}\", encode() of round {}: expected {}{} bytes, as its rounds() state for "
      "{} elements, found {}; return what was written, and state is_bound if that varies",
      sender.method, sender.tensor, sender.round, is_bound ? "at most " : "", room, sender.elements,
      sent));
}

}  // namespace linerate::compress
