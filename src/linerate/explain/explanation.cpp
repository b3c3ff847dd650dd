// Sentences that the command and the pages of `report` share: findings, causes and gains.
#include "linerate/explain/explanation.hpp"

#include <fmt/format.h>

#include <algorithm>

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

// The rule of docs/explain.md on the numbers of a Breakdown, as shares of the step. apply() is the
// rule. It judges the job first and then each step by itself: the share of steps that agree is the
// confidence.
//
// (Agreeing + 1) / (steps + 2) is Laplace's rule of succession. Five steps of five that agree give
// 0.86, one of one gives 0.67: few steps never make a verdict sure.

struct Shares {
  double idle = 0, loading = 0, exposed = 0, transfer = 0, wait = 0, unsplit = 0, transfer_most = 0;
  bool of_replay = false;  // transfer and wait: what the step would gain without each
};

Shares shares_of(const Busy& b) {
  if (b.window_s <= 0) return {.idle = 1};
  return {.idle = b.idle_s / b.window_s,
          .loading = b.loading_idle_s / b.window_s,
          .exposed = b.exposed_s / b.window_s,
          .transfer = b.exposed_transfer_s / b.window_s,
          .wait = b.exposed_wait_s / b.window_s,
          .unsplit = b.exposed_unsplit_s / b.window_s,
          .transfer_most = b.exposed_transfer_most_s / b.window_s};
}

/// Puts the gains of a replay in place of busy times. Example: rank 1 is late by 60 ms, so rank 0
/// waits for 60 ms and rank 1 for nothing. The mean wait is 30 ms, and the job loses 60.
void take_gains(Shares& s, double transfer, double wait, double both) {
  s.transfer = transfer, s.wait = wait, s.unsplit = 0, s.of_replay = true;
  s.exposed = std::max(s.exposed, both);
}

Shares shares_of(const Breakdown& b) {
  Shares s = shares_of(b.in_steps);
  const auto transfer = share_for(b.path.gains, Remedy::infinitely_fast_network);
  const auto wait = share_for(b.path.gains, Remedy::no_stragglers);
  if (transfer && wait && b.path.communication_share)
    take_gains(s, *transfer, *wait, *b.path.communication_share);
  return s;
}

Shares shares_of(const StepRow& step) {
  Shares s = shares_of(step.busy);
  const double window = step.busy.window_s;
  if (step.gain && window > 0)
    take_gains(s, step.gain->transfer_s / window, step.gain->wait_s / window,
               step.gain->communication_s / window);
  return s;
}

/// Rules 2 to 6. Exposed time that cannot be split leaves the last question open only if it could
/// turn the answer. With 30 % transfer, 5 % waiting and 10 % unsplit the job is network-bound
/// either way.
Finding apply(const Shares& s, const Breakdown& b, const Thresholds& t) {
  if (b.path.no_common_step || b.of_several_runs) return Finding::inconclusive;
  if (s.loading > t.data_idle) return Finding::input_bound;
  if (s.idle > t.host_idle) return Finding::host_bound;
  if (b.communication_unknown) return Finding::inconclusive;
  if (s.exposed < t.exposed)
    return s.exposed + b.may_communicate_share < t.exposed ? Finding::compute_bound
                                                           : Finding::inconclusive;
  if (b.ranks_missing) return Finding::inconclusive;
  if (s.transfer >= s.wait + s.unsplit) return Finding::network_bound;
  if (s.wait <= s.transfer + s.unsplit) return Finding::inconclusive;
  // Ranks wait for whoever wakes first if all of them pause, and nobody is late.
  return b.path.has_cause(CauseKind::pause) && !b.path.has_cause(CauseKind::late_rank)
             ? Finding::host_bound
             : Finding::skew_bound;
}

/// One of the two costs of exposed communication: its words as a part of the exposed time, as a
/// remedy, and its share.
struct Cost {
  std::string_view part, remedy;
  double share;
};

/// A gain that a replay finds is no part of the exposed time, so the sentence must not read like a
/// sum. In one job 17 % is exposed. A network that takes no time saves 13 %, punctual ranks 0 %.
std::string spent(const std::string& exposed, const Cost& more, const Cost& less, bool of_replay) {
  const std::string first = format_percent(more.share), second = format_percent(less.share);
  if (!of_replay)
    return fmt::format("exposed communication is {} of the step: {} {}, {} {}", exposed, first,
                       more.part, second, less.part);
  return fmt::format(
      "exposed communication is {} of the step. With {} it would be {} shorter, with {} {}",
      exposed, more.remedy, first, less.remedy, second);
}

std::string reason_of(const Verdict& v, const Breakdown& b, const Shares& s) {
  const std::string exposed = format_percent(v.exposed_share);
  const Cost transfer{"moving data", "a network that takes no time", s.transfer};
  const Cost wait{"waiting for late ranks", "ranks that are never late", s.wait};
  switch (v.finding) {
    case Finding::input_bound:
      return fmt::format(
          "the device is idle for {} of the step while data is being loaded (above {})",
          format_percent(v.loading_share), format_percent(v.thresholds.data_idle));
    case Finding::host_bound:
      if (s.idle <= v.thresholds.host_idle)
        return fmt::format(
            "every rank's host pauses. Exposed communication is {} of the step. Ranks wait for "
            "each other for {} of the step because they wake at different times. No rank is late",
            exposed, format_percent(s.wait));
      return fmt::format(
          "the device is idle for {} of the step (above {}), so the host does not keep it busy. "
          "The profiler's own work adds to this share",
          format_percent(v.idle_share), format_percent(v.thresholds.host_idle));
    case Finding::compute_bound:
      return fmt::format("exposed communication is {} of the step (below {}), the device idles {}",
                         exposed, format_percent(v.thresholds.exposed),
                         format_percent(v.idle_share));
    case Finding::network_bound:
      return spent(exposed, transfer, wait, s.of_replay);
    case Finding::skew_bound:
      return spent(exposed, wait, transfer, s.of_replay);
    case Finding::inconclusive:
      break;
  }
  if (!b.has_steps)
    return "no step is marked in the trace, so busy times cannot be related to steps; record with "
           "a "
           "schedule and prof.step() of torch.profiler, or with linerate.profile";
  if (!b.has_device)
    return "the trace holds no device activity; record with ProfilerActivity.CUDA, too";
  if (b.path.no_common_step)
    return "no step is in the traces of all ranks; they were recorded at other times, or cut; "
           "record all ranks in the same steps";
  if (b.of_several_runs)
    return "most collectives end at different times on different ranks, so the files are of "
           "different runs, or clocks are wrong; give files of one run";
  if (b.communication_unknown)
    return "the job has several ranks, but the trace holds no communication; record the process "
           "that communicates";
  if (v.exposed_share < v.thresholds.exposed)
    return fmt::format(
        "exposed communication is between {} and {} of the step, because some kernels only sound "
        "like communication ({})",
        exposed, format_percent(v.exposed_share + b.may_communicate_share),
        join(b.may_communicate, "; "));
  if (b.ranks_missing)
    return fmt::format(
        "exposed communication is {} of the step, but only {} of {} ranks are here. Without the "
        "others, waiting for late ranks and moving data cannot be told apart (transfer {} to {}, "
        "waiting {} to {} of the step); give the traces of all ranks",
        exposed, b.ranks.size(),
        b.world_size > 0 ? std::to_string(b.world_size) : "an unknown number of",
        format_percent(v.transfer_share_low), format_percent(v.transfer_share_high),
        format_percent(v.wait_share_low), format_percent(v.wait_share_high));
  return fmt::format(
      "exposed communication is {} of the step; {} of it could not be split into transfer and "
      "waiting",
      exposed, format_percent(s.unsplit));
}

/// What can be said while other ranks are missing.
RemedyShares or_shares(const Breakdown& b, const Shares& s, const RemedyShares& known) {
  if (!b.has_steps || !b.has_device || b.path.no_common_step) return {};
  RemedyShares c = known;
  const auto or_share = [&c](Remedy r, double share) {
    c[static_cast<std::size_t>(r)] = share_for(c, r).value_or(share);
  };
  or_share(Remedy::no_host_gaps, s.idle);
  or_share(Remedy::no_data_stalls, s.loading);
  if (!b.communication_unknown) or_share(Remedy::perfect_overlap, s.exposed);
  return c;
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

std::vector<std::vector<std::string>> gain_rows(const Verdict& v) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t r = 0; r < kRemedies; ++r)
    rows.push_back(
        {std::string(kRemedyNames[r]), share_text(v.gains[r]), share_text(v.ceilings[r])});
  return rows;
}

/// Some exposed time may be neither transfer nor waiting for certain. Then both get bounds, the low
/// end with none of it and the high end with all of it.
Verdict judge(const Breakdown& b, const Thresholds& thresholds) {
  Verdict v;
  v.thresholds = thresholds;
  const Shares s = shares_of(b);
  v.idle_share = s.idle;
  v.loading_share = s.loading;
  v.exposed_share = s.exposed;
  v.transfer_share_low = s.transfer;
  v.transfer_share_high = std::min(
      s.exposed, std::max(s.transfer, b.ranks_missing ? s.transfer_most : s.transfer + s.unsplit));
  const bool split = !b.ranks_missing && s.unsplit == 0;
  v.wait_share_low = split ? s.wait : std::max(0.0, s.exposed - v.transfer_share_high);
  v.wait_share_high = split ? s.wait : std::max(0.0, s.exposed - v.transfer_share_low);
  if (b.has_steps && b.has_device) v.finding = apply(s, b, thresholds);
  v.reason = reason_of(v, b, s);
  v.gains = or_shares(b, s, b.path.gains);
  v.ceilings = or_shares(b, s, b.path.ceilings);
  if (v.finding == Finding::inconclusive) return v;
  int steps = 0, agreeing = 0;
  for (const StepRow& step : b.steps) {
    if (b.path.of_some_ranks.contains(step.number)) continue;
    ++steps;
    agreeing += apply(shares_of(step), b, thresholds) == v.finding;
  }
  v.confidence = static_cast<double>(agreeing + 1) / static_cast<double>(steps + 2);
  return v;
}

}  // namespace linerate::trace
