#include "linerate/trace/job/phase.hpp"

#include <algorithm>

namespace linerate::trace {
namespace {

class Partition {
 public:
  void add(Span span, Phase phase) {
    if (!out_.empty()) span.start_ns = std::max(span.start_ns, out_.back().span.end_ns);
    if (span.length() <= 0) return;
    if (!out_.empty() && out_.back().phase == phase && out_.back().span.end_ns == span.start_ns)
      out_.back().span.end_ns = span.end_ns;
    else
      out_.push_back({span, phase});
  }
  std::vector<PhaseSpan> take() { return std::move(out_); }

 private:
  std::vector<PhaseSpan> out_;
};

}  // namespace

std::vector<PhaseSpan> with_pauses(std::vector<PhaseSpan> work,
                                   const std::vector<std::int64_t>& step_starts) {
  std::sort(work.begin(), work.end(), [](const PhaseSpan& a, const PhaseSpan& b) {
    return a.span.start_ns < b.span.start_ns;
  });
  Partition all;
  const PhaseSpan* before = nullptr;  // the one that ended last
  for (const PhaseSpan& now : work) {
    if (before != nullptr && now.span.start_ns > before->span.end_ns) {
      const std::int64_t from = before->span.end_ns, to = now.span.start_ns;
      const auto step = std::lower_bound(step_starts.begin(), step_starts.end(), from);
      const std::int64_t border = step == step_starts.end() ? to : std::min(*step, to);
      all.add({from, border}, before->phase == Phase::data_loading ? now.phase : before->phase);
      all.add({border, to}, now.phase);
    }
    all.add(now.span, now.phase);
    if (before == nullptr || now.span.end_ns >= before->span.end_ns) before = &now;
  }
  return all.take();
}

}  // namespace linerate::trace
