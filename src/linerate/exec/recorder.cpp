// Events come with two kinds of times. A time of the host is nanoseconds of the steady clock. A
// device's time is not known yet when the host enqueues the work. So it is a negative number that
// stands for a moment of the device. Events keep their times as they were given. timeline() asks
// the device for its times and moves all of them to the origin.
//
// Moments are numbered through all devices that were followed. For example the first device has
// made moments 0 to 4, recorded as -2 to -6. Then follow() names a second device: the five times
// are read and kept, and its moment 0 is recorded as -7. A recorded -7 is thus entry 5 of all times
// that were read.
#include "linerate/exec/recorder.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <utility>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

namespace linerate::exec {
namespace {

std::int64_t epoch_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Equal for two processes exactly if they share the steady clock, that is, if they run on one host
/// since the same boot.
std::int64_t boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return static_cast<std::int64_t>(hash_bytes(id));
}

/// The number that Recorder::now() gives for the first moment of the first device. It is not -1,
/// because -1 is an unknown time.
constexpr std::int64_t kFirstMoment = -2;

bool is_moment(std::int64_t time) { return time <= kFirstMoment; }

/// The index of a value in a list, at whose end it is put if it is new. `known`: those of the list.
template <typename Value>
std::int32_t index_in(std::vector<Value>& list, std::map<Value, std::int32_t>& known,
                      const Value& value) {
  const auto [at, added] = known.try_emplace(value, static_cast<std::int32_t>(list.size()));
  if (added) list.push_back(value);
  return at->second;
}

template <typename Value>
std::map<Value, std::int32_t> indices_of(const std::vector<Value>& list) {
  std::map<Value, std::int32_t> known;
  for (std::size_t i = 0; i < list.size(); ++i)
    known.emplace(list[i], static_cast<std::int32_t>(i));
  return known;
}

/// Copies `from` into `whole`. Events name their texts and parameter sets by index, so each index
/// is translated into the index of the same text in `whole`.
void append(doc::Timeline& whole, const doc::Timeline& from) {
  auto names = indices_of(whole.names), parameters = indices_of(whole.parameter_names);
  auto sets = indices_of(whole.parameter_sets);
  std::vector<std::int32_t> name_of, set_of;
  for (const std::string& name : from.names) name_of.push_back(index_in(whole.names, names, name));
  for (const auto& set : from.parameter_sets) {
    std::vector<std::int32_t> moved;
    for (const std::int32_t p : set)
      moved.push_back(
          index_in(whole.parameter_names, parameters, from.parameter_names[to_index(p)]));
    std::sort(moved.begin(), moved.end());
    set_of.push_back(index_in(whole.parameter_sets, sets, moved));
  }
  for (doc::Event event : from.events) {
    if (event.name >= 0) event.name = name_of[to_index(event.name)];
    if (event.set >= 0) event.set = set_of[to_index(event.set)];
    whole.events.push_back(event);
  }
  whole.steps.insert(whole.steps.end(), from.steps.begin(), from.steps.end());
  whole.counters.insert(whole.counters.end(), from.counters.begin(), from.counters.end());
  for (const std::string& note : from.notes)
    if (std::find(whole.notes.begin(), whole.notes.end(), note) == whole.notes.end())
      whole.notes.push_back(note);
}

}  // namespace

/// Rank 0 broadcasts its boot id and its "now" by both clocks. A rank with the same boot id takes
/// the steady clock's number as it is. On another host the steady clock began elsewhere. There the
/// rank counts back from its own "now" by as much as its system clock is past rank 0's. For example
/// rank 0 says 12:00:00.000 and rank 2 reads 12:00:00.004 on its own system clock. Then zero was 4
/// ms ago on rank 2's steady clock.
TimeOrigin agree_origin(comm::Communicator& communicator) {
  std::array<std::int64_t, 3> zero = {boot_id(), steady_ns(), epoch_ns()};
  communicator.broadcast(comm::buffer(zero), 0, "time origin")->wait();
  if (zero[0] == boot_id()) return {zero[1], zero[2]};
  return {steady_ns() - (epoch_ns() - zero[2]), zero[2]};
}

Recorder::Recorder(const comm::Communicator& communicator, TimeOrigin origin, std::string mode)
    : origin_(origin), rank_(communicator.rank()) {
  timeline_.mode = std::move(mode);
  timeline_.transport = communicator.transport();
  timeline_.origin_ns = origin.epoch_ns;
  timeline_.ranks = communicator.size();
}

std::int32_t Recorder::name_id(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return index_in(timeline_.names, names_, name);
}

std::int32_t Recorder::set_id(const std::vector<std::string>& parameters) {
  const std::lock_guard lock(mutex_);
  std::vector<std::int32_t> set;
  for (const std::string& name : parameters)
    set.push_back(index_in(timeline_.parameter_names, parameters_, name));
  std::sort(set.begin(), set.end());
  return index_in(timeline_.parameter_sets, sets_, set);
}

std::int64_t Recorder::now() {
  std::shared_ptr<DeviceMoments> device;
  if (kept_) {
    const std::lock_guard lock(mutex_);
    device = device_;
  }
  return device ? time_of(device->now()) : steady_ns();
}

std::int64_t Recorder::time_of(std::int64_t moment) const {
  const std::lock_guard lock(mutex_);
  return kFirstMoment - static_cast<std::int64_t>(read_.size()) - moment;
}

void Recorder::follow(std::shared_ptr<DeviceMoments> device, std::string type) {
  const std::lock_guard lock(mutex_);
  timeline_.device = std::move(type);
  if (device_) {
    const std::vector<std::int64_t> read = device_->read();
    read_.insert(read_.end(), read.begin(), read.end());
  }
  device_ = std::move(device);
}

void Recorder::keep(bool yes) {
  const bool kept_before = kept_.exchange(yes);
  if (!yes || kept_before) return;
  const std::lock_guard lock(mutex_);
  if (device_) device_->compare_clocks();
}

void Recorder::add(doc::Event event, std::int32_t step) {
  if (!kept_) return;
  const std::lock_guard lock(mutex_);
  event.rank = rank_;
  event.step = step;
  timeline_.events.push_back(event);
}

void Recorder::add(doc::Counter counter) {
  if (!kept_) return;
  const std::lock_guard lock(mutex_);
  counter.rank = rank_;
  for (doc::CounterSample& sample : counter.samples) sample.time_ns -= origin_.steady_ns;
  timeline_.counters.push_back(std::move(counter));
}

void Recorder::begin_step(std::int32_t index) {
  const std::lock_guard lock(mutex_);
  step_ = index;
}

void Recorder::add_step(std::int32_t index, std::int64_t start_ns, std::int64_t end_ns,
                        const std::string& variant) {
  const std::lock_guard lock(mutex_);
  timeline_.steps.push_back({rank_, index, start_ns, end_ns, variant});
}

std::int32_t Recorder::step() const {
  const std::lock_guard lock(mutex_);
  return step_;
}

void Recorder::forget() {
  const std::lock_guard lock(mutex_);
  timeline_.events.clear();
  timeline_.steps.clear();
  timeline_.counters.clear();
}

/// Moves times to the origin, and gives those of a device. Two moments of one stream may be a
/// rounding apart in the wrong order, so no event ends before it starts.
doc::Timeline Recorder::timeline() const {
  const std::lock_guard lock(mutex_);
  doc::Timeline whole = timeline_;
  std::vector<std::int64_t> read = read_;
  const auto is_late = [](const auto& e) { return is_moment(e.start_ns) || is_moment(e.end_ns); };
  const auto waits = [&](const doc::Event& e) { return is_late(e) || is_moment(e.ready_ns); };
  if (device_ && (std::any_of(whole.events.begin(), whole.events.end(), waits) ||
                  std::any_of(whole.steps.begin(), whole.steps.end(), is_late))) {
    const std::vector<std::int64_t> more = device_->read();
    read.insert(read.end(), more.begin(), more.end());
  }
  const auto move = [&](std::int64_t& time) {
    if (is_moment(time)) time = read[to_index(kFirstMoment - time)];
    if (time != -1) time -= origin_.steady_ns;  // -1 stays unknown
  };
  const auto move_both = [&](auto& e) {
    const bool late = is_late(e);
    move(e.start_ns);
    move(e.end_ns);
    if (late) e.end_ns = std::max(e.start_ns, e.end_ns);
  };
  for (doc::Event& event : whole.events) move(event.ready_ns), move_both(event);
  for (doc::Step& step : whole.steps) move_both(step);
  return whole;
}

doc::Timeline merge(const std::vector<doc::Timeline>& timelines) {
  if (timelines.empty()) return {};
  doc::Timeline whole = timelines.front();
  for (std::size_t r = 1; r < timelines.size(); ++r) append(whole, timelines[r]);
  return whole;
}

doc::Timeline gather_timeline(comm::Communicator& communicator, const doc::Timeline& mine) {
  // All ranks' texts travel to all ranks: simple, and a recorded run is a few megabytes.
  const std::vector<std::string> texts =
      comm::gather_texts(communicator, to_json(mine), "timeline");
  if (communicator.rank() != 0) return {};
  std::vector<doc::Timeline> timelines;
  for (std::size_t r = 0; r < texts.size(); ++r)
    timelines.push_back(doc::timeline_from_json(texts[r], "timeline of rank " + std::to_string(r)));
  return merge(timelines);
}

}  // namespace linerate::exec
