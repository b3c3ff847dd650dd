#include "simulated_device/order.hpp"

#include <algorithm>

namespace linerate::simulated {

namespace {

void raise_to(std::vector<std::int64_t>& places, const std::vector<std::int64_t>& others) {
  if (places.size() < others.size()) places.resize(others.size());
  for (std::size_t i = 0; i < others.size(); ++i) places[i] = std::max(places[i], others[i]);
}

}  // namespace

void Clock::set(int stream, std::int64_t at) {
  const auto index = static_cast<std::size_t>(stream);
  for (auto* const places : {&at_, &would_be_at_}) {
    if (places->size() <= index) places->resize(index + 1);
    (*places)[index] = at;
  }
}

void Clock::learn(const Clock& other) {
  raise_to(at_, other.at_);
  raise_to(would_be_at_, other.would_be_at_);
}

void Clock::miss(const Clock& other) {
  raise_to(would_be_at_, other.would_be_at_);
  at_.resize(would_be_at_.size());
}

bool Clock::knows(const Clock& other) const {
  for (std::size_t i = 0; i < other.at_.size(); ++i)
    if (other.at_[i] > (*this)[static_cast<int>(i)]) return false;
  return true;
}

Clock& Order::of(int stream) {
  const auto index = static_cast<std::size_t>(stream);
  if (streams_.size() <= index) streams_.resize(index + 1);
  return streams_[index];
}

Clock Order::event(int stream) {
  of(stream).learn(host_);
  return of(stream);
}

Clock Order::all() const {
  Clock clock;
  for (const Clock& stream : streams_) clock.learn(stream);
  return clock;
}

std::vector<Conflict> Order::work(int stream, std::string name, std::string task,
                                  const std::vector<Range>& reads,
                                  const std::vector<Range>& writes) {
  Clock& clock = of(stream);
  clock.learn(host_);
  worked_without_ = worked_without_ || clock.misses_something();
  clock.set(stream, clock[stream] + 1);
  const auto now =
      std::make_shared<const Work>(Work{stream, clock[stream], std::move(name), std::move(task)});
  std::vector<Conflict> found;
  for (const Range& range : reads) read(range, now, found);
  for (const Range& range : writes) write(range, now, found);
  return found;
}

bool Order::is_still_without() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const Clock& stream) { return stream.misses_something(); });
}

void Order::mend() {
  for (Clock& stream : streams_) stream.mend();
  host_.mend();
  worked_without_ = false;
}

void Order::split_at(std::size_t byte) {
  auto it = uses_.upper_bound(byte);
  if (it == uses_.begin()) return;
  --it;
  if (it->first == byte || it->second.end <= byte) return;
  Use right = it->second;
  it->second.end = byte;
  uses_.emplace_hint(std::next(it), byte, std::move(right));
}

void Order::check(const char* kind, const std::shared_ptr<const Work>& before,
                  const std::shared_ptr<const Work>& now, std::size_t byte,
                  std::vector<Conflict>& found) {
  if (!before || before->at <= of(now->stream)[before->stream]) return;
  const bool is_new = std::none_of(found.begin(), found.end(),
                                   [&](const Conflict& c) { return c.before == before; });
  if (is_new) found.push_back({kind, before, now, byte});
}

void Order::read(const Range& range, const std::shared_ptr<const Work>& now,
                 std::vector<Conflict>& found) {
  split_at(range.begin);
  split_at(range.end);
  std::size_t byte = range.begin;
  for (auto it = uses_.lower_bound(range.begin); byte < range.end; ++it) {
    if (it == uses_.end() || it->first > byte) {  // nobody's yet
      const std::size_t end = it == uses_.end() ? range.end : std::min(range.end, it->first);
      it = uses_.emplace_hint(it, byte, Use{end, nullptr, {}});
    }
    Use& use = it->second;
    check("read after write", use.written, now, byte, found);
    const auto mine = std::find_if(use.read.begin(), use.read.end(),
                                   [&](const auto& r) { return r->stream == now->stream; });
    if (mine == use.read.end())
      use.read.push_back(now);
    else
      *mine = now;
    byte = use.end;
  }
}

void Order::write(const Range& range, const std::shared_ptr<const Work>& now,
                  std::vector<Conflict>& found) {
  if (range.begin >= range.end) return;
  split_at(range.begin);
  split_at(range.end);
  const auto first = uses_.lower_bound(range.begin), last = uses_.lower_bound(range.end);
  for (auto it = first; it != last; ++it) {
    check("write after write", it->second.written, now, it->first, found);
    for (const auto& earlier : it->second.read)
      check("write after read", earlier, now, it->first, found);
  }
  uses_.emplace_hint(uses_.erase(first, last), range.begin, Use{range.end, now, {}});
}

}  // namespace linerate::simulated
