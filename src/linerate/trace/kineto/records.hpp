// Private: raw tokens of a PyTorch/Kineto trace become the records of kineto_trace.hpp.
#pragma once

#include <string>
#include <utility>

#include "linerate/trace/input/read_options.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"
#include "linerate/trace/kineto/tokens.hpp"

namespace linerate::trace {

/// Fills a KinetoTrace from the tokens of a file, or of a part of it: each thread that reads has
/// its own (append). Threads of the host whose "tid" is a word get negative numbers.
class KinetoRecords : public TokenSink {
 public:
  KinetoRecords(KinetoTrace& out, Progress progress) : out_(out), progress_(std::move(progress)) {}

  bool needs_no_args(EventCategory category, std::string_view name) override;
  void event(EventCategory category, const EventTokens& t) override;
  void progress(std::size_t bytes_done) override {
    if (progress_) progress_(bytes_done);
  }
  /// Takes over the records of the part of the file that follows.
  void append(KinetoRecords& next);
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

}  // namespace linerate::trace
