// Whether what touches a device's memory is ordered: vector clocks of its streams and of the host,
// as a race detector has them of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace linerate::simulated {

/// How far each stream has come, in works: as far as is known, and as far as would be known if no
/// wait had been left out.
class Clock {
 public:
  std::int64_t operator[](int stream) const {
    const auto at = static_cast<std::size_t>(stream);
    return at < at_.size() ? at_[at] : 0;
  }
  void set(int stream, std::int64_t at);
  void learn(const Clock& other);
  /// Of a wait that is left out.
  void miss(const Clock& other);
  bool knows(const Clock& other) const;
  bool misses_something() const { return at_ != would_be_at_; }
  /// As if no wait had been left out.
  void mend() { at_ = would_be_at_; }

 private:
  std::vector<std::int64_t> at_, would_be_at_;  // as many
};

/// Bytes, from `begin` to before `end`.
struct Range {
  std::size_t begin, end;
};

/// What a stream was given to do.
struct Work {
  int stream;
  std::int64_t at;  // of its stream: the first is 1
  std::string name, task;
};

struct Conflict {
  const char* kind;  // "read after write", "write after write", "write after read"
  std::shared_ptr<const Work> before, now;
  std::size_t byte;  // the first one
};

/// One device's. The host learns by waiting, and what it enqueues then knows all that it knows.
class Order {
 public:
  /// Returns what the stream did not know of: each earlier use of a byte that this one has to come
  /// after.
  std::vector<Conflict> work(int stream, std::string name, std::string task,
                             const std::vector<Range>& reads, const std::vector<Range>& writes);

  /// Of an event that is recorded now.
  Clock event(int stream);
  void stream_learns(int stream, const Clock& event) { of(stream).learn(event); }
  /// This wait is left out.
  void stream_misses(int stream, const Clock& event) { of(stream).miss(event); }
  /// A stream did something although it lacked the knowledge of a wait that was left out.
  /// It may have lacked it through other streams. A later wait that says the same excuses it.
  bool worked_without() const { return worked_without_; }
  /// Whether a stream lacks that still.
  bool is_still_without() const;
  /// As if no wait had been left out until now.
  void mend();
  void host_learns(const Clock& event) { host_.learn(event); }
  bool stream_knows(int stream, const Clock& event) { return of(stream).knows(event); }
  bool host_knows(int stream, std::int64_t at) const { return host_[stream] >= at; }
  /// All streams' works.
  Clock all() const;
  void forget_uses() { uses_.clear(); }

 private:
  /// Who has used bytes up to `end`: one write, and reads since then, one of each stream.
  struct Use {
    std::size_t end;
    std::shared_ptr<const Work> written;
    std::vector<std::shared_ptr<const Work>> read;
  };
  using Uses = std::map<std::size_t, Use>;  // by their first byte

  Clock& of(int stream);
  void split_at(std::size_t byte);
  void read(const Range& range, const std::shared_ptr<const Work>& now,
            std::vector<Conflict>& found);
  void write(const Range& range, const std::shared_ptr<const Work>& now,
             std::vector<Conflict>& found);
  void check(const char* kind, const std::shared_ptr<const Work>& before,
             const std::shared_ptr<const Work>& now, std::size_t byte,
             std::vector<Conflict>& found);

  std::vector<Clock> streams_;
  Clock host_;
  Uses uses_;
  bool worked_without_ = false;
};

}  // namespace linerate::simulated
