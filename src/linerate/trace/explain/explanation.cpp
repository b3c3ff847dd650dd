// Sentences that the command and the pages of `report` share: findings, causes, hooks and gains.
#include "linerate/trace/explain/explanation.hpp"

#include <fmt/format.h>

#include <cmath>

#include "linerate/core/text.hpp"

namespace linerate::trace {
namespace {

std::string share_text(const std::optional<double>& share) {
  return share ? format_percent(*share) : "n/a";
}

std::string place_text(const std::optional<StepPhase>& where) {
  if (!where) return "in an unknown place";
  if (*where == StepPhase::between_steps) return "between steps, on the host";
  return fmt::format("in {}", name_of(*where));
}

std::string what_and_where(const Cause& c) {
  const std::string who = c.rank ? fmt::format("rank {}", *c.rank) : std::string("every rank");
  const std::string much = fmt::format("{} in {} of {} step{}", format_time(c.per_step_s),
                                       c.steps_with_it, c.steps, c.steps == 1 ? "" : "s");
  switch (c.kind) {
    case CauseKind::data_loading:
      return fmt::format("{} waits for data {}", who, much);
    case CauseKind::pause:
      return fmt::format("{} pauses for {}, {}; no data loader is at work there", who, much,
                         place_text(c.where));
    default:
      return fmt::format("{} is late by {}; it loses that time {}", who, much, place_text(c.where));
  }
}

}  // namespace

Explanation explain(const Job& job, const Thresholds& thresholds) {
  Explanation e{.breakdown = break_down(job), .verdict = {}};
  e.verdict = judge(e.breakdown, thresholds);
  return e;
}

std::string finding_text(const Verdict& v) {
  return fmt::format("{}{}{}", v.leans() ? "inconclusive, leaning to " : "", name_of(v.finding),
                     v.confidence ? fmt::format(" (confidence {:.2f})", *v.confidence) : "");
}

std::vector<std::string> cause_texts(const CriticalPath& path) {
  std::vector<std::string> texts;
  for (const Cause& c : path.causes) {
    texts.push_back(what_and_where(c));
    if (c.gain_share)
      texts.back() += fmt::format(". Without this the step is {} shorter, at most {}",
                                  format_percent(*c.gain_share), share_text(c.most_share));
  }
  return texts;
}

namespace {

std::string net_text(double gain_s) {
  return fmt::format("{} {}", gain_s > 0 ? "gains" : "loses", format_time(std::abs(gain_s)));
}

/// A profiler draws out what the host does, most of all in a hook of many small operators.
std::string hook_answer(const HookCost& h) {
  const double least = h.without_s - h.step_s, most = h.without_s - h.with_quick_host_s;
  if (least <= 0 && most > 0)
    return fmt::format(
        "it is not clear from this recording whether the hook gains. With the host's times as "
        "recorded, which the profiler lengthens, the hook {}; if its host took no time, it {}. "
        "Time steps with and without the hook, and without the profiler",
        net_text(least), net_text(most));
  return fmt::format("the hook {} (the host's times include the profiler's own work)",
                     net_text(least));
}

}  // namespace

std::string hook_text(const HookCost& h) {
  const std::string device =
      h.work_s > 0 ? fmt::format("{} of computation on the device, ", format_time(h.work_s)) : "";
  return fmt::format(
      "it sends {} instead of {} a step, which saves {} of {} on the network. It costs {}{} on the "
      "host, and {} of overlap that backward loses while it waits for exchanges. A replay without "
      "the hook changes a step of {} to {}: {}",
      format_size(static_cast<double>(h.sent_bytes)),
      format_size(static_cast<double>(h.dense_bytes)),
      format_time(h.dense_transfer_s - h.transfer_s), format_time(h.dense_transfer_s), device,
      format_time(h.host_s), format_time(h.lost_overlap_s), format_time(h.step_s),
      format_time(h.without_s), hook_answer(h));
}

std::vector<std::vector<std::string>> gain_rows(const Verdict& v) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t r = 0; r < kRemedies; ++r)
    rows.push_back(
        {std::string(kRemedyNames[r]), share_text(v.gains[r]), share_text(v.ceilings[r])});
  return rows;
}

}  // namespace linerate::trace
