#include "linerate/comm/fingerprint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "linerate/core/hash.hpp"

namespace linerate::comm {

std::string_view name_of(Operation operation) {
  constexpr std::array<std::string_view, 7> names = {"all-reduce",   "reduce-scatter", "all-gather",
                                                     "all-gather-v", "all-to-all",     "broadcast",
                                                     "barrier"};
  return names[static_cast<std::size_t>(operation)];
}

std::string_view name_of(Reduce op) {
  constexpr std::array<std::string_view, 3> names = {"sum", "max", "min"};
  return names[static_cast<std::size_t>(op)];
}

void Fingerprint::set_name(std::string_view full) {
  name_hash = hash_bytes(full);
  name_length = static_cast<std::uint8_t>(std::min(full.size(), name.size()));
  std::memcpy(name.data(), full.data(), name_length);
}

namespace {

bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
}

/// What differs, in the order in which it explains the most; empty when nothing does.
std::string_view difference(const Fingerprint& a, const Fingerprint& b) {
  if (a.operation != b.operation) return "operation";
  if (a.name_hash != b.name_hash) return "name (or the order of submission)";
  if (a.dtype != b.dtype) return "dtype";
  if (a.operation == Operation::all_gather_v) {
    if (a.counts_hash != b.counts_hash) return "list of counts";
  } else if (a.count != b.count) {
    return "count";
  }
  if (reduces(a.operation) && a.reduce != b.reduce) return "reduction";
  if (a.root != b.root) return "root";
  if (a.sequence != b.sequence) return "sequence number";
  return {};
}

}  // namespace

std::string Fingerprint::describe() const {
  std::string text{name_of(operation)};
  if (operation != Operation::barrier) {
    text +=
        fmt::format(" {}of {} {}", reduces(operation) ? fmt::format("{} ", name_of(reduce)) : "",
                    count, linerate::name_of(dtype));
  }
  if (root >= 0) text += fmt::format(" from rank {}", root);
  return text + fmt::format(" \"{}\" (number {})", shown_name(), sequence);
}

std::optional<std::string> find_mismatch(std::span<const Fingerprint> ranks) {
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const std::string_view what = difference(ranks[0], ranks[r]);
    if (what.empty()) continue;
    return fmt::format(
        "ranks disagree on the {} of a collective: rank 0 runs {}, rank {} runs {}; nothing was "
        "sent. Submit the same operations in the same order on every rank",
        what, ranks[0].describe(), r, ranks[r].describe());
  }
  return std::nullopt;
}

}  // namespace linerate::comm
