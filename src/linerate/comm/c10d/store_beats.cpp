// Each rank of a world has a thread that writes the rank's beat to the process group's store once a
// period. If a rank's own collective is stuck, its thread reads the others' beats, and Liveness
// judges them. The first rank that finds a reason writes it under the key "end". The store keeps
// the first one, so all ranks end with the same message.
//
// Example of three ranks with a period of 1 s: rank 2 is killed at 10 s, while all three are in an
// all-reduce. At 11 s ranks 0 and 1 see that they are stuck, and look at the beats. Rank 2's beat
// does not change any more. When it has been silent for as long as Liveness allows, rank 0 writes
// the reason. Rank 1 finds that at its next look.
#include "linerate/comm/c10d/c10d_channel.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
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

std::string key_of(int rank) { return fmt::format("rank {}", rank); }

/// The prefix of a world's keys. Worlds of one group are numbered, because every rank of the group
/// makes them together. Worlds of other groups are made by other ranks.
std::string next_c10d_world(const std::string& group) {
  static std::mutex mutex;
  static std::map<std::string, int> worlds;
  const std::lock_guard lock(mutex);
  return fmt::format("linerate/{}/{}/", group, ++worlds[group]);
}

}  // namespace

StoreBeats::StoreBeats(C10dGroup& group, std::shared_ptr<Liveness> life, Clock::duration start,
                       std::function<void()> failed)
    : life_(std::move(life)),
      store_(group.store(next_c10d_world(group.name()))),
      failed_(std::move(failed)),
      last_beat_(to_index(life_->size())) {
  publish();
  wait_for_all(start);
  thread_ = std::thread([this] { loop(); });
}

void StoreBeats::wait_for_all(Clock::duration limit) {
  const Clock::time_point start = Clock::now();
  std::vector<int> missing(to_index(life_->size()));
  std::iota(missing.begin(), missing.end(), 0);
  while (true) {
    std::erase_if(missing, [this](int r) { return store_->has(key_of(r)); });
    if (missing.empty()) return;
    if (Clock::now() - start > limit)
      throw CommError(
          fmt::format("rank {}: rank{} {} did not come within {}; every rank of the process group "
                      "has to make the communicator",
                      life_->rank(), missing.size() > 1 ? "s" : "", fmt::join(missing, ", "),
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
  said_.wait_for(lock, 3 * life_->period() + milliseconds(500),
                 [this] { return failure_.has_value(); });
  return failure_.value_or(reason);
}

std::string StoreBeats::ended_by_or(const std::string& problem) {
  {
    std::unique_lock lock(mutex_);
    said_.wait_for(lock, std::max<Clock::duration>(3 * life_->period(), milliseconds(100)),
                   [this] { return failure_.has_value(); });
  }
  return ended_by(problem);
}

void StoreBeats::leave() {
  life_->set_state(Beat::State::left);
  std::unique_lock lock(mutex_);
  leaving_ = true;
  wake_.notify_all();
  said_.wait_for(lock, 2 * life_->period() + milliseconds(500), [this] { return said_leave_; });
}

void StoreBeats::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    serve();
    lock.lock();
    wake_.wait_for(lock, life_->period(), [this] {
      return stopping_ || (leaving_ && !said_leave_) || (wanted_end_ && !failure_);
    });
  }
  const bool unsaid = wanted_end_ && !failure_;
  lock.unlock();
  if (unsaid) serve();
}

/// One period's work of the thread: writes the beat, and looks at the end of the run or at the
/// peers. If the store does not answer, the run has failed, unless this rank is leaving.
void StoreBeats::serve() {
  std::optional<std::string> wanted;
  bool over = false, leaving = false;
  {
    const std::lock_guard lock(mutex_);
    wanted = wanted_end_;
    over = failure_.has_value();
    leaving = leaving_;
  }
  std::optional<std::string> problem;
  try {
    life_->awake(Clock::now());
    publish();
    if (over) {
    } else if (wanted) {
      set_failure(store_->set_first(kEnd, *wanted));
    } else if (store_->has(kEnd)) {
      set_failure(store_->get(kEnd));
    } else {
      look_at_peers();
    }
  } catch (const std::exception& e) {
    problem = fmt::format("rank {}: the process group's store does not answer: {}", life_->rank(),
                          first_line(e.what()));
  }
  if (problem && !leaving) set_failure(*problem);
  if (!leaving) return;
  {
    const std::lock_guard lock(mutex_);
    said_leave_ = true;
  }
  said_.notify_all();
}

/// Writes the number of the beat, the beat, and a line for each rank.
void StoreBeats::publish() {
  const int size = life_->size();
  std::vector<SharedWork> shared(to_index(size));
  const Beat beat = life_->say(Clock::now(), 0, shared);
  std::string report(sizeof(beat_) + sizeof(Beat) + to_index(size) * sizeof(SharedWork), '\0');
  char* to = report.data();
  const auto append = [&to](const auto& value) {
    std::memcpy(to, &value, sizeof(value));
    to += sizeof(value);
  };
  append(++beat_);
  append(beat);
  for (const SharedWork& work : shared) append(work);
  store_->set(key_of(life_->rank()), report);
}

/// Reads the beats of all ranks of the job, if this rank is stuck. Ranks outside of the group count
/// as well, because a busy one may hold up a member.
void StoreBeats::look_at_peers() {
  const Clock::time_point start = Clock::now();
  const auto stuck = life_->stuck(start);
  if (!stuck || *stuck < life_->period()) {
    looked_ = false;
    return;
  }
  for (int r = 0; r < life_->size(); ++r) {
    if (r == life_->rank()) continue;
    const std::string report = store_->get(key_of(r));
    const auto own_line =
        sizeof(std::uint64_t) + sizeof(Beat) + to_index(life_->rank()) * sizeof(SharedWork);
    if (report.size() < own_line + sizeof(SharedWork)) continue;
    std::uint64_t number = 0;
    Beat beat;
    SharedWork shared;
    std::memcpy(&number, report.data(), sizeof(number));
    std::memcpy(&beat, report.data() + sizeof(number), sizeof(beat));
    std::memcpy(&shared, report.data() + own_line, sizeof(shared));
    // A beat that is new since the last look counts as heard now. At the first look a beat may be
    // of any time, so it counts as heard when this rank got stuck.
    if (std::exchange(last_beat_[to_index(r)], number) != number)
      life_->heard(r, beat, shared, looked_ ? Clock::now() : start - *stuck);
  }
  looked_ = true;
  if (const auto reason = life_->judge(Clock::now())) set_failure(store_->set_first(kEnd, *reason));
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
