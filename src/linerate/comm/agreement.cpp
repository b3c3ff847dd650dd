// All functions here cost one small collective if ranks agree: a hash, a code or a flag. Only if
// they do not, texts are gathered, and every rank comes to that second collective because all saw
// the same numbers in the first.
//
// Example of require_success() on three ranks that open a file each. Rank 1 finds no file and rank
// 2 a damaged one. Their codes are 0, 3 and 3, so all three gather the messages. All three throw an
// InputError with "rank 1: ...; rank 2: ...", rank 0 too. If rank 0 went on alone, it would wait
// for the others in its next collective.
#include "linerate/comm/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "linerate/core/error.hpp"
#include "linerate/core/hash.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
namespace {

std::vector<std::int64_t> gather_integers(Communicator& communicator, std::int64_t value,
                                          const std::string& name) {
  std::vector<std::int64_t> all(to_index(communicator.size()));
  communicator.all_gather(buffer(value), buffer(all), name)->wait();
  return all;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
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
