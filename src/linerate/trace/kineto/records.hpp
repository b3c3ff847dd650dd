// Private: raw tokens of a PyTorch/Kineto trace become the records of kineto_trace.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"
#include "linerate/trace/kineto/tokens.hpp"

namespace linerate::trace {

/// Fills a KinetoTrace from the tokens of a file, in its order. Threads of the host whose "tid" is
/// a word get negative numbers.
class KinetoRecords : public TokenSink {
 public:
  KinetoRecords(KinetoTrace& out, Progress progress) : out_(out), progress_(std::move(progress)) {}

  bool needs_no_args(EventCategory category, std::string_view name) override;
  void event(EventCategory category, const EventTokens& t) override;
  void progress(std::size_t bytes_done) override {
    if (progress_) progress_(bytes_done);
  }
  /// Rank, ranks and groups of the job and time base, which may follow the events.
  void file(const FileTokens& f);

 private:
  // These turn tokens into values. False or -1: there is none, or it cannot be; span_of() counts
  // why.
  bool span_of(const EventTokens& t, Span& span);
  std::int32_t args_of(const ArgTokens& a);
  std::int32_t group_of(const ArgTokens& a);
  std::int32_t group_index(GroupRecord group);
  std::int32_t splits_of(const ArgTokens& a);
  std::int32_t shapes_of(const ArgTokens& a);
  // These append a record to `out_`.
  void keep_device(const EventTokens& t, Span span, bool copy);
  void keep_cpu(const EventTokens& t, Span span, bool annotation);
  void keep_operator(const EventTokens& t, Span span, std::int32_t name, std::int64_t tid);
  void keep_mark(const EventTokens& t, Span span, std::int32_t name, std::int64_t tid);
  std::int64_t thread_of(std::string_view token);

  KinetoTrace& out_;
  Progress progress_;
  NameTable thread_names_;
  std::string last_thread_token_ = "?";  // no JSON
  std::int64_t last_thread_ = -1;
  std::vector<GroupRecord> groups_;
};

// Private: when the device finished what the host asked for.

/// Launches by correlation. The trace must outlive it.
class LaunchTimes {
 public:
  explicit LaunchTimes(const KinetoTrace& trace);
  /// Null if the trace does not hold the launch.
  const Launch* of(std::uint64_t correlation) const;

 private:
  std::vector<Launch> by_correlation_;
};

/// Answers when the work that the host had launched by some moment was done on the device. Only
/// computation counts, and neither communication nor copies.
///
/// Example. Kernels launched at 1, 2 and 3 ms end at 4, 9 and 7 ms, as they run on two streams.
/// What was launched by 2.5 ms is done at 9 ms, and what was launched by 3 ms is done at 9 ms, too.
/// So a running maximum of the ends, by launch, answers with one binary search.
class DeviceClock {
 public:
  DeviceClock(const KinetoTrace& trace, const LaunchTimes& launches);

  /// When everything launched up to a moment of the host was done on the device; nullopt if nothing
  /// was.
  std::optional<std::int64_t> work_done_by(std::int64_t host_ns) const;
  /// The same, and not before the host's own time.
  std::int64_t done_by(std::int64_t host_ns) const;

 private:
  std::vector<Span> done_;  // launch, running maximum of the kernels' ends
};

}  // namespace linerate::trace
