// Compares the collectives that ranks are about to run, and words the differences. In checked mode
// ranks exchange fingerprints before each collective (queued_communicator.cpp). Without it, beats
// carry the last ones, and Liveness words a difference when a rank is stuck.
//
// Fields are compared in the order in which they explain most. A rank that runs another operation
// mostly differs in name and count as well, and only the operation is then named. With three ranks,
// ranks 1 and 2 are compared with rank 0, and the first difference is the message on all of them.
#include "linerate/comm/fingerprint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

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
  name.set(full);
}

void Fingerprint::set_group(std::uint64_t number, std::string_view full_name) {
  group = number;
  group_name.set(full_name);
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
  text += fmt::format(" \"{}\" (number {})", name.shown(), sequence);
  if (group_name.length > 0) text += fmt::format(" in group \"{}\"", group_name.shown());
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

// All functions here cost one small collective if ranks agree: a hash, a code or a flag. Only if
// they do not, texts are gathered, and every rank comes to that second collective because all saw
// the same numbers in the first.
//
// Example of require_success() on three ranks that open a file each. Rank 1 finds no file and rank
// 2 a damaged one. Their codes are 0, 3 and 3, so all three gather the messages. All three throw an
// InputError with "rank 1: ...; rank 2: ...", rank 0 too. If rank 0 went on alone, it would wait
// for the others in its next collective.

namespace {

std::vector<std::int64_t> gather_integers(Communicator& communicator, std::int64_t value,
                                          const std::string& name) {
  std::vector<std::int64_t> all(to_index(communicator.size()));
  communicator.all_gather(buffer(value), buffer(all), name)->wait();
  return all;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The error of `action`: exit code and message; code 0 if it threw nothing.
struct Failure {
  int code = 0;
  std::string message;
};

Failure failure_of(const std::function<void()>& action) {
  try {
    action();
    return {};
  } catch (const Error& e) {
    return {e.exit_code(), e.what()};
  } catch (const std::exception& e) {
    return {70, e.what()};
  }
}

[[noreturn]] void throw_on_every_rank(const Failure& failure) {
  switch (failure.code) {
    case 2:
      throw on_every_rank(UsageError(failure.message));
    case 3:
      throw on_every_rank(InputError(failure.message));
    case 4:
      throw on_every_rank(CommError(failure.message));
    case 5:
      throw on_every_rank(DeviceError(failure.message));
    default:
      throw on_every_rank(InternalError(failure.message));
  }
}

/// "rank 1: no folder; rank 3: cut off": each message once, with the first rank that has it.
std::string messages_of(const std::vector<std::string>& by_rank) {
  std::string joined;
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    const auto here = by_rank.begin() + static_cast<std::ptrdiff_t>(r);
    if (by_rank[r].empty() || std::find(by_rank.begin(), here, by_rank[r]) != here) continue;
    joined += fmt::format("{}rank {}: {}", joined.empty() ? "" : "; ", r, by_rank[r]);
  }
  return joined;
}

std::string line_or_end(const std::vector<std::string>& lines, std::size_t index) {
  return index < lines.size() ? "\"" + lines[index] + "\""
                              : fmt::format("nothing (only {} entries)", lines.size());
}

}  // namespace

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text,
                                      const std::string& name) {
  const std::vector<std::int64_t> counts =
      gather_integers(communicator, static_cast<std::int64_t>(text.size()), name + ": lengths");
  std::string joined(to_index(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})),
                     '\0');
  communicator.all_gather_v(buffer(text), buffer(joined), counts, name)->wait();
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (const std::int64_t count : counts) {
    texts.push_back(joined.substr(begin, to_index(count)));
    begin += to_index(count);
  }
  return texts;
}

std::string broadcast_text(Communicator& communicator, const std::string& text,
                           const std::string& name) {
  std::int64_t length = static_cast<std::int64_t>(text.size());
  communicator.broadcast(buffer(length), 0, name + ": length")->wait();
  std::string result = communicator.rank() == 0 ? text : std::string(to_index(length), '\0');
  communicator.broadcast(buffer(result), 0, name)->wait();
  return result;
}

/// Compares hashes first. If they differ, the first line that differs between rank 0 and the first
/// other rank is named.
void require_same(Communicator& communicator, const std::string& what,
                  const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const std::vector<std::int64_t> hashes = gather_integers(
      communicator, static_cast<std::int64_t>(hash_bytes(text)), what + ": fingerprint");
  if (std::all_of(hashes.begin(), hashes.end(), [&](std::int64_t h) { return h == hashes[0]; }))
    return;
  // Every rank saw the same hashes, so every rank comes here.
  const std::vector<std::string> texts = gather_texts(communicator, text, what);
  const std::size_t other = to_index(
      std::find_if(hashes.begin(), hashes.end(), [&](std::int64_t h) { return h != hashes[0]; }) -
      hashes.begin());
  const std::vector<std::string> ours = split_lines(texts[0]), theirs = split_lines(texts[other]);
  std::size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  throw on_every_rank(CommError(
      fmt::format("{}: ranks differ: rank 0 has {}, rank {} has {}; start every rank with the same "
                  "program, model and options",
                  what, line_or_end(ours, i), other, line_or_end(theirs, i))));
}

void require_success(Communicator& communicator, const std::string& what,
                     const std::function<void()>& action) {
  const Failure mine = failure_of(action);
  const std::vector<std::int64_t> codes =
      gather_integers(communicator, mine.code, what + ": any failure");
  const auto first = std::find_if(codes.begin(), codes.end(), [](auto code) { return code != 0; });
  if (first == codes.end()) return;
  const std::vector<std::string> messages =
      gather_texts(communicator, mine.message, what + ": failures");
  const bool alike = std::all_of(messages.begin(), messages.end(),
                                 [&](const std::string& m) { return m == messages[0]; });
  throw_on_every_rank({static_cast<int>(*first), alike ? messages[0] : messages_of(messages)});
}

void require_no_problem(Communicator& communicator, const std::string& what,
                        const std::string& problem) {
  std::int32_t bad = problem.empty() ? 0 : 1;
  communicator.all_reduce(buffer(bad), Reduce::max, what + ": any problem")->wait();
  if (bad == 0) return;
  const std::vector<std::string> problems =
      gather_texts(communicator, problem, what + ": problems");
  for (std::size_t r = 0; r < problems.size(); ++r)
    if (!problems[r].empty())
      throw on_every_rank(UsageError(fmt::format("{}: rank {}: {}", what, r, problems[r])));
}

}  // namespace linerate::comm
