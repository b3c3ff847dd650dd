// What ranks compare before a collective in checked mode: a mismatch is found before the first
// payload byte moves, by every rank, from the same facts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "linerate/comm/communicator.hpp"

namespace linerate::comm {

enum class CollectiveCall : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_gather_v,
  all_to_all,
  broadcast,
  barrier
};
std::string_view name_of(CollectiveCall call);
std::string_view name_of(Reduce op);

/// Plain bytes, so that it travels as it is.
struct Fingerprint {
  std::uint64_t sequence = 0;
  std::int64_t count = 0;         // elements of this rank's input
  std::uint64_t counts_hash = 0;  // all_gather_v: of all counts
  std::uint64_t name_hash = 0;    // of the whole name
  std::uint64_t group = 0;        // the communicator's number; 0 is the whole job
  std::int32_t root = -1;         // its rank in the job
  CollectiveCall call = CollectiveCall::barrier;
  DType dtype = DType::u8;
  Reduce reduce = Reduce::sum;
  std::uint8_t name_length = 0;
  std::array<char, 80> name{};  // its beginning, for the message
  std::uint8_t group_length = 0;
  std::array<char, 39> group_name{};  // its beginning; empty for the whole job

  void set_name(std::string_view full);
  void set_group(std::uint64_t number, std::string_view full_name);
  std::string_view shown_name() const { return {name.data(), name_length}; }
  std::string_view shown_group() const { return {group_name.data(), group_length}; }
  /// A hash of what members must agree on before messages fit: everything but name and number.
  std::uint64_t kind() const;
  /// "all-reduce sum of 1000 f32 \"bucket 3\" (number 4) in group \"rows\""
  std::string describe() const;
};

/// What a rank began last, and before that: what its peers say of it where they compared nothing.
/// Plain bytes.
struct Begun {
  Fingerprint last, before;
  std::int64_t count = 0;  // of all that it began
  void add(const Fingerprint& print) {
    before = last;
    last = print;
    ++count;
  }
  bool knows(const Fingerprint* print) const { return count > (print == &last ? 0 : 1); }
};

/// Why ranks that did not compare cannot go on: what each of the two runs or ran, and in what that
/// differs. `seen` is how rank `rank` noticed.
std::string different_operations(const std::string& seen, int rank, const Begun& own, int peer,
                                 const Begun& theirs);

/// Index i holds what rank ranks[i] of the job is about to do. Nothing when all agree (all_gather_v
/// counts of ranks may differ, their list may not); else one message, the same on every rank, that
/// names two sides and what differs.
std::optional<std::string> find_mismatch(std::span<const Fingerprint> prints,
                                         std::span<const int> ranks);

/// Nothing when `theirs` belongs to the communicator of `own`; else a message that says that the
/// two ranks use their groups in different orders.
std::optional<std::string> find_disorder(int own_rank, const Fingerprint& own, int their_rank,
                                         const Fingerprint& theirs);

}  // namespace linerate::comm
