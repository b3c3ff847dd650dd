// Ranks compare fingerprints before a collective in checked mode. A mismatch is found before the
// first payload byte moves, by every rank, from the same facts.
//
// For example rank 0 submits an all-reduce of 1000 f32 "bucket 3" and rank 1 an all-reduce of 1200
// f32 "bucket 4". Both send their fingerprint and read the other's. Both throw the same sentence,
// which names both operations and says that they differ in the name.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/comm/communicator.hpp"

namespace linerate::comm {

std::string_view name_of(CollectiveCall call);
std::string_view name_of(Reduce op);

/// The beginning of a text, for messages. Plain bytes, so that it travels as it is.
template <std::size_t kMost, typename Length = std::uint8_t>
struct CutText {
  Length length = 0;
  std::array<char, kMost> bytes{};

  void set(std::string_view full) { length = static_cast<Length>(full.copy(bytes.data(), kMost)); }
  std::string_view shown() const { return {bytes.data(), length}; }
};

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
  CutText<80> name{};
  CutText<39> group_name{};  // empty for the whole job

  void set_name(std::string_view full);
  void set_group(std::uint64_t number, std::string_view full_name);
  /// A hash of what members must agree on before messages fit: everything but name and number.
  std::uint64_t kind() const;
  /// "all-reduce sum of 1000 f32 \"bucket 3\" (number 4) in group \"rows\""
  std::string describe() const;
};

/// The collective that a rank began last and the one before it. Peers tell of these in errors if
/// they compared nothing. Plain bytes.
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

/// The error of ranks that did not compare and cannot go on: the operation of each side, and how
/// the two differ. `seen` tells how rank `rank` noticed.
std::string different_operations(const std::string& seen, int rank, const Begun& own, int peer,
                                 const Begun& theirs);

/// Finds the first difference among fingerprints; prints[i] is that of rank ranks[i] of the job.
/// Returns nothing if all agree. (In all_gather_v the ranks' counts may differ; their list may
/// not.) Else returns a message that names two sides and the difference. It is the same on every
/// rank.
std::optional<std::string> find_mismatch(std::span<const Fingerprint> prints,
                                         std::span<const int> ranks);

/// Returns nothing if `theirs` belongs to the communicator of `own`. Else returns a message that
/// the two ranks use their groups in different orders.
std::optional<std::string> find_disorder(int own_rank, const Fingerprint& own, int their_rank,
                                         const Fingerprint& theirs);

// Agreements of ranks before data moves. Short texts are gathered everywhere, so that every rank
// throws the same error and names both sides. If only one side noticed a difference, the other side
// would wait for ever.
//
// For example rank 2 of three cannot open its file. It does not throw, because ranks 0 and 1 would
// then wait in the next collective. In require_success() all ranks gather exit codes (0, 0, 3),
// then messages, and all throw "rank 2: ...".

/// The text of every rank, by rank, on every rank. Collective.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text,
                                      const std::string& name);

/// Rank 0's text, on every rank. Collective.
std::string broadcast_text(Communicator& communicator, const std::string& text,
                           const std::string& name);

/// Compares `lines` across ranks, hashes first. Throws the same CommError on every rank: "<what>:
/// rank 0 has ..., rank 2 has ..." with the first line that differs. Collective.
void require_same(Communicator& communicator, const std::string& what,
                  const std::vector<std::string>& lines);

/// Runs `action` on this rank. If it throws on any rank, every rank throws the same error. If all
/// ranks failed alike, it is that error. Else it is of the kind of the first rank that failed, with
/// "rank r:" before each different message. `action` must not communicate, because a failure on one
/// rank would leave the others waiting. Collective.
void require_success(Communicator& communicator, const std::string& what,
                     const std::function<void()>& action);

/// `problem` is empty if this rank is fine. If any rank has one, every rank throws a UsageError
/// that names the rank and its problem. Collective.
void require_no_problem(Communicator& communicator, const std::string& what,
                        const std::string& problem);

}  // namespace linerate::comm
