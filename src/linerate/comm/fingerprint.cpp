// Compares the collectives that ranks are about to run, and words the differences. In checked mode
// ranks exchange fingerprints before each collective (progress_queue.cpp). Without it, beats carry
// the last ones, and Liveness words a difference when a rank is stuck.
//
// Fields are compared in the order in which they explain most. A rank that runs another operation
// mostly differs in name and count as well, and only the operation is then named. With three ranks,
// ranks 1 and 2 are compared with rank 0, and the first difference is the message on all of them.
#include "linerate/comm/fingerprint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "linerate/core/hash.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {

std::string_view name_of(CollectiveCall call) {
  constexpr std::array<std::string_view, 7> names = {"all-reduce",   "reduce-scatter", "all-gather",
                                                     "all-gather-v", "all-to-all",     "broadcast",
                                                     "barrier"};
  return names[to_index(call)];
}

std::string_view name_of(Reduce op) {
  constexpr std::array<std::string_view, 3> names = {"sum", "max", "min"};
  return names[to_index(op)];
}

void Fingerprint::set_name(std::string_view full) {
  name_hash = hash_bytes(full);
  name_length = static_cast<std::uint8_t>(std::min(full.size(), name.size()));
  std::memcpy(name.data(), full.data(), name_length);
}

void Fingerprint::set_group(std::uint64_t number, std::string_view full_name) {
  group = number;
  group_length = static_cast<std::uint8_t>(std::min(full_name.size(), group_name.size()));
  std::memcpy(group_name.data(), full_name.data(), group_length);
}

namespace {

bool reduces(CollectiveCall call) {
  return call == CollectiveCall::all_reduce || call == CollectiveCall::reduce_scatter;
}

/// The difference that explains the most; empty if there is none.
std::string_view difference(const Fingerprint& a, const Fingerprint& b) {
  if (a.call != b.call) return "operation";
  if (a.name_hash != b.name_hash) return "name (or the order of submission)";
  if (a.dtype != b.dtype) return "dtype";
  if (a.call == CollectiveCall::all_gather_v) {
    if (a.counts_hash != b.counts_hash) return "list of counts";
  } else if (a.count != b.count) {
    return "count";
  }
  if (reduces(a.call) && a.reduce != b.reduce) return "reduction";
  if (a.root != b.root) return "root";
  if (a.sequence != b.sequence) return "sequence number";
  return {};
}

}  // namespace

/// A hash of the fields that must agree for the collective to work, without the name and the
/// number. Two calls of one kind can be taken for each other.
std::uint64_t Fingerprint::kind() const {
  const bool listed = call == CollectiveCall::all_gather_v;
  const std::uint64_t small = static_cast<std::uint64_t>(call) << 16 |
                              static_cast<std::uint64_t>(dtype) << 8 |
                              (reduces(call) ? static_cast<std::uint64_t>(reduce) : 0xff);
  std::uint64_t hash = hash_value(small);
  hash = hash_value(listed ? counts_hash : static_cast<std::uint64_t>(count), hash);
  hash = hash_value(static_cast<std::uint64_t>(root), hash);
  return hash_value(group, hash);
}

std::string Fingerprint::describe() const {
  std::string text{name_of(call)};
  if (call != CollectiveCall::barrier) {
    text += fmt::format(" {}of {} {}", reduces(call) ? fmt::format("{} ", name_of(reduce)) : "",
                        count, linerate::name_of(dtype));
  }
  if (root >= 0) text += fmt::format(" from rank {}", root);
  text += fmt::format(" \"{}\" (number {})", shown_name(), sequence);
  if (group_length > 0) text += fmt::format(" in group \"{}\"", shown_group());
  return text;
}

std::optional<std::string> find_mismatch(std::span<const Fingerprint> prints,
                                         std::span<const int> ranks) {
  for (std::size_t i = 1; i < prints.size(); ++i) {
    const std::string_view what = difference(prints[0], prints[i]);
    if (what.empty()) continue;
    return fmt::format(
        "ranks disagree on the {} of a collective: rank {} runs {}, rank {} runs {}; nothing was "
        "sent. Submit the same operations in the same order on every rank",
        what, ranks[0], prints[0].describe(), ranks[i], prints[i].describe());
  }
  return std::nullopt;
}

std::string different_operations(const std::string& seen, int rank, const Begun& own, int peer,
                                 const Begun& theirs) {
  // The oldest collective that both know by its number and that is not the same; else the last.
  const Fingerprint *mine = &own.last, *other = &theirs.last;
  std::string_view what;
  for (const Fingerprint* a : {&own.last, &own.before})
    for (const Fingerprint* b : {&theirs.last, &theirs.before}) {
      const bool known = own.knows(a) && theirs.knows(b);
      if (known && a->group == b->group && a->sequence == b->sequence && a->kind() != b->kind())
        mine = a, other = b, what = difference(*a, *b);
    }
  const auto side = [](int r, const Begun& begun, const Fingerprint* print) {
    if (begun.count == 0) return fmt::format("rank {} runs nothing", r);
    return fmt::format("rank {} {} {}", r, print == &begun.last ? "runs" : "ran",
                       print->describe());
  };
  return fmt::format(
      "{}: {}, {}{}: the ranks run different operations here, now or before, or use their groups "
      "in different orders (turn checked mode on)",
      seen, side(rank, own, mine), side(peer, theirs, other),
      what.empty() ? std::string() : fmt::format(", which differ in the {}", what));
}

std::optional<std::string> find_disorder(int own_rank, const Fingerprint& own, int their_rank,
                                         const Fingerprint& theirs) {
  if (own.group == theirs.group) return std::nullopt;
  return fmt::format(
      "ranks use their groups in different orders: rank {} runs {}, rank {} runs {}. Submit the "
      "operations of all groups in one order that every rank agrees on",
      own_rank, own.describe(), their_rank, theirs.describe());
}

}  // namespace linerate::comm
