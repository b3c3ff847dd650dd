#include "linerate/comm/c10d/store_beats.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"

namespace linerate::comm {
namespace {

using std::chrono::milliseconds;

const char* const kEnd = "end";

Clock::duration beat_period(Clock::duration timeout) {
  return std::clamp<Clock::duration>(timeout / 20, milliseconds(20), milliseconds(500));
}

template <std::size_t kSize>
void copy_words(std::array<char, kSize>& to, const std::string& text) {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = '\0';
}

/// Where a world's keys stand. Worlds of one group are numbered: every rank of it makes them
/// together, where those of other groups are made by other ranks.
std::string next_c10d_world(const std::string& group) {
  static std::mutex mutex;
  static std::map<std::string, int> worlds;
  const std::lock_guard lock(mutex);
  return fmt::format("linerate/{}/{}/", group, ++worlds[group]);
}

}  // namespace

struct StoreBeats::Head {
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();
  std::uint64_t beat = 0;
  std::int64_t stalled_ns = -1;  // as Report::stalled; -1 outside of collectives
  std::int64_t busy_ns = -1;     // as BusyReport::left; -1 if it is not busy
  std::int32_t held_by = Report::kNobody;
  std::int32_t left = 0;
  std::int32_t compares = 0, spare = 0;
  std::array<char, 64> busy_what{};
  Begun prints;  // what it runs
};

StoreBeats::StoreBeats(C10dGroup& group, Clock::duration timeout, Clock::duration start,
                       std::function<void()> failed)
    : rank_(group.rank()),
      size_(group.size()),
      period_(beat_period(timeout)),
      store_(group.store(next_c10d_world(group.name()))),
      failed_(std::move(failed)),
      submitted_(to_index(size_)),
      lines_(to_index(size_), Line{.history = {kHashStart}}),
      liveness_(rank_, size_, timeout, Clock::now()),
      last_beat_(to_index(size_)),
      looked_(to_index(size_)),
      differs_since_(to_index(size_), Clock::time_point::max()),
      last_serve_(Clock::now()) {
  publish();
  wait_for_all(start);
  thread_ = std::thread([this] { loop(); });
}

void StoreBeats::wait_for_all(Clock::duration limit) {
  const Clock::time_point start = Clock::now();
  std::vector<int> missing(to_index(size_));
  std::iota(missing.begin(), missing.end(), 0);
  while (true) {
    std::erase_if(missing, [this](int r) { return store_->has(key(r)); });
    if (missing.empty()) return;
    if (Clock::now() - start > limit)
      throw CommError(fmt::format(
          "rank {}: rank{} {} did not come within {}: every rank of the process group makes the "
          "communicator",
          rank_, missing.size() > 1 ? "s" : "", fmt::join(missing, ", "),
          format_time(std::chrono::duration<double>(limit).count())));
    std::this_thread::sleep_for(milliseconds(2));
  }
}

StoreBeats::~StoreBeats() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::string StoreBeats::key(int rank) const { return fmt::format("rank {}", rank); }

void StoreBeats::submitted(std::span<const int> members) {
  for (const int r : members) submitted_[to_index(r)].fetch_add(1, std::memory_order_relaxed);
}

void StoreBeats::begin(const Purpose& purpose, const Turns& turns) {
  const std::lock_guard lock(mutex_);
  members_.assign(purpose.members.begin(), purpose.members.end());
  prints_.add(*purpose.print);
  for (const int r : members_) {
    Line& line = lines_[to_index(r)];
    line.begun = turns.begun(r);
    line.history[line.begun % Line::kKept] = turns.history(r);
    differs_since_[to_index(r)] = Clock::time_point::max();
  }
  std::fill(looked_.begin(), looked_.end(), false);
  inside_ = true;
  compares_ = false;
  liveness_.stuck_since(Clock::now());
}

void StoreBeats::take_back(const Turns& turns) {
  const std::lock_guard lock(mutex_);
  for (const int r : members_) {
    Line& line = lines_[to_index(r)];
    line.history[line.begun % Line::kKept] = turns.history(r);
  }
}

void StoreBeats::compares() {
  const std::lock_guard lock(mutex_);
  compares_ = true;
}

void StoreBeats::moved() {
  const std::lock_guard lock(mutex_);
  liveness_.stuck_since(Clock::now());
}

void StoreBeats::end() {
  const std::lock_guard lock(mutex_);
  inside_ = false;
}

void StoreBeats::set_busy(std::optional<BusyNote> note) {
  {
    const std::lock_guard lock(mutex_);
    busy_ = std::move(note);
    dirty_ = true;
  }
  wake_.notify_all();
}

void StoreBeats::end_run(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!wanted_end_) wanted_end_ = reason;
  }
  wake_.notify_all();
}

std::optional<std::string> StoreBeats::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_ ? failure_ : wanted_end_;
}

std::string StoreBeats::ended_by(const std::string& reason) {
  end_run(reason);
  // The store decides which reason was the first.
  std::unique_lock lock(mutex_);
  said_.wait_for(lock, 3 * period_ + milliseconds(500), [this] { return failure_.has_value(); });
  return failure_.value_or(reason);
}

std::string StoreBeats::ended_by_or(const std::string& problem) {
  {
    std::unique_lock lock(mutex_);
    said_.wait_for(lock, std::max<Clock::duration>(3 * period_, milliseconds(100)),
                   [this] { return failure_.has_value(); });
  }
  return ended_by(problem);
}

std::string StoreBeats::different_operations(const std::string& seen, int peer) {
  const std::lock_guard lock(mutex_);
  return comm::different_operations(seen, rank_, prints_, peer,
                                    liveness_.report(peer).begun_prints);
}

void StoreBeats::leave() {
  std::unique_lock lock(mutex_);
  left_ = dirty_ = true;
  const std::uint64_t before = published_;
  wake_.notify_all();
  said_.wait_for(lock, 2 * period_ + milliseconds(500), [&] { return published_ > before; });
}

void StoreBeats::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    serve();
    lock.lock();
    wake_.wait_for(lock, period_,
                   [this] { return stopping_ || dirty_ || (wanted_end_ && !failure_); });
  }
  const bool unsaid = wanted_end_ && !failure_;
  lock.unlock();
  if (unsaid) serve();
}

/// A store that is gone takes the run with it, unless there is nothing left to do.
void StoreBeats::serve() {
  try {
    const Clock::time_point now = Clock::now();
    std::optional<std::string> wanted;
    bool over = false;
    {
      const std::lock_guard lock(mutex_);
      // Silence while this process itself slept says nothing about the others.
      const Clock::duration gap = now - last_serve_;
      if (gap > 4 * period_) liveness_.forgive(gap);
      last_serve_ = now;
      wanted = wanted_end_;
      over = failure_.has_value();
      dirty_ = false;
    }
    publish();
    if (over) return;
    if (wanted) return set_failure(store_->set_first(kEnd, *wanted));
    if (store_->has(kEnd)) return set_failure(store_->get(kEnd));
    look_at_peers();
  } catch (const std::exception& e) {
    const bool left = [this] {
      const std::lock_guard lock(mutex_);
      ++published_;  // nobody will hear of it
      return left_;
    }();
    said_.notify_all();
    if (!left)
      set_failure(fmt::format("rank {}: the process group's store does not answer: {}", rank_,
                              first_line(e.what())));
  }
}

void StoreBeats::publish() {
  std::string report(sizeof(Head) + lines_.size() * sizeof(Line), '\0');
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    Head head;
    head.beat = ++last_beat_[to_index(rank_)];
    head.left = left_ ? 1 : 0;
    head.compares = compares_ ? 1 : 0;
    head.prints = prints_;
    if (inside_) {
      head.stalled_ns = std::chrono::nanoseconds(now - liveness_.stuck_since()).count();
      head.held_by = liveness_.held_by();
    }
    if (busy_) {
      head.busy_ns = Head::kEndless;
      if (busy_->until)
        head.busy_ns =
            std::max<std::int64_t>(0, std::chrono::nanoseconds(*busy_->until - now).count());
      copy_words(head.busy_what, busy_->what);
    }
    for (std::size_t r = 0; r < lines_.size(); ++r)
      lines_[r].submitted = submitted_[r].load(std::memory_order_relaxed);
    std::memcpy(report.data(), &head, sizeof(Head));
    std::memcpy(report.data() + sizeof(Head), lines_.data(), lines_.size() * sizeof(Line));
  }
  store_->set(key(rank_), report);
  {
    const std::lock_guard lock(mutex_);
    ++published_;
  }
  said_.notify_all();
}

/// What two ranks have begun together, up to the one that has come less far, was the same, or they
/// run different programs. A report may be of the moment before: two looks must see it.
std::optional<std::string> StoreBeats::find_other_operation(int peer, const Head& head,
                                                            const Line& theirs) {
  const Line& mine = lines_[to_index(peer)];
  Clock::time_point& since = differs_since_[to_index(peer)];
  const bool inside = head.stalled_ns >= 0;
  const std::uint64_t both = std::min(mine.begun, theirs.begun);
  const bool known = std::max(mine.begun, theirs.begun) - both < Line::kKept;
  const std::size_t at = both % Line::kKept;
  const bool differs = (known && theirs.history[at] != mine.history[at]) ||
                       (theirs.begun == mine.begun && inside && (head.compares != 0) != compares_);
  if (!differs) {
    since = Clock::time_point::max();
    return std::nullopt;
  }
  const Clock::time_point now = Clock::now();
  if (since == Clock::time_point::max()) {
    since = now;
    return std::nullopt;
  }
  if (now - since < 2 * period_) return std::nullopt;
  const std::string seen = fmt::format("rank {} and rank {} began different ones", rank_, peer);
  return comm::different_operations(seen, rank_, prints_, peer, head.prints);
}

void StoreBeats::look_at_peers() {
  std::vector<int> members;
  {
    const std::lock_guard lock(mutex_);
    if (!inside_ || Clock::now() - liveness_.stuck_since() < period_) return;
    members = members_;
  }
  std::vector<std::pair<int, std::string>> reports;
  // All ranks of the job: who holds up a member may be in another group.
  for (int r = 0; r < size_; ++r)
    if (r != rank_) reports.emplace_back(r, store_->get(key(r)));
  std::optional<std::string> reason;
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (!inside_) return;
    std::vector<std::uint64_t> begun(lines_.size());
    for (std::size_t r = 0; r < lines_.size(); ++r) begun[r] = lines_[r].begun;
    for (const auto& [r, text] : reports) {
      Head head;
      Line line;
      if (text.size() < sizeof(Head) + lines_.size() * sizeof(Line)) continue;
      std::memcpy(&head, text.data(), sizeof(Head));
      std::memcpy(&line, text.data() + sizeof(Head) + to_index(rank_) * sizeof(Line), sizeof(Line));
      Report report{.submitted = line.submitted,
                    .begun = line.begun,
                    .left = head.left != 0,
                    .begun_prints = head.prints};
      if (head.stalled_ns >= 0) report.stalled = std::chrono::nanoseconds(head.stalled_ns);
      report.held_by = head.held_by;
      if (head.busy_ns >= 0) {
        report.busy = BusyReport{head.busy_what.data()};
        if (head.busy_ns != Head::kEndless)
          report.busy->left = std::chrono::nanoseconds(head.busy_ns);
      }
      std::uint64_t& last = last_beat_[to_index(r)];
      // A beat since the last look is one of now; one before the first look, of any time.
      const bool first = !looked_[to_index(r)];
      looked_[to_index(r)] = true;
      if (std::exchange(last, head.beat) != head.beat)
        liveness_.heard(r, report, first ? std::min(now, liveness_.stuck_since()) : now);
      const bool member = std::find(members_.begin(), members_.end(), r) != members_.end();
      if (member && !reason) reason = find_other_operation(r, head, line);
    }
    const Liveness::Waiting waiting{members_, begun};
    liveness_.note_busy_peers(waiting, now);
    if (!reason) reason = liveness_.diagnose(waiting, now);
  }
  if (reason) set_failure(store_->set_first(kEnd, *reason));
}

void StoreBeats::set_failure(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = reason;
  }
  said_.notify_all();
  failed_();
}

}  // namespace linerate::comm
