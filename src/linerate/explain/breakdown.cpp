// Everything that `explain` measures, in one pass over a job. run() is the order: what is there,
// collectives over ranks, interval sets by rank, causes and gains, then sums by rank and by step.
// explanation.cpp judges the result, explain_text.cpp prints it.
//
// Two kinds of figures stand next to each other. Busy times are lengths of interval sets, and need
// nothing but one rank's trace. Gains come from a replay (ceilings.cpp), and need all
// ranks. A mean of busy times halves what one late rank of two costs; a gain does not.
#include "linerate/explain/explanation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/scaling_factor.hpp"
#include "linerate/explain/causes.hpp"
#include "linerate/explain/lateness.hpp"
#include "linerate/explain/program.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/periods.hpp"

namespace linerate::trace {
namespace {

/// One span for each run of steps that follow each other. Time between two steps of a run counts,
/// such as a loader's. Time between two runs does not: its steps were not recorded.
std::vector<Span> runs_of_steps(const std::vector<StepSpan>& steps) {
  std::vector<Span> runs;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Span step = steps[i].time();
    if (i == 0 || steps[i].number != steps[i - 1].next_number()) runs.push_back(step);
    runs.back() = hull_of(runs.back(), step);
  }
  return runs;
}

class Analysis {
 public:
  explicit Analysis(const Job& job) : job_(job), matched_(match_collectives(job)) {}

  Breakdown run() {
    start();
    build_rows();
    build_sets();
    expose_rows();
    out_.path =
        critical_path_of(job_, matched_, !out_.ranks_missing && !out_.communication_unknown);
    measure_ranks();
    measure_steps();
    find_late_ranks();
    note_steps_of_some();
    note_irregularities();
    sum_bytes();
    relate_to_line_rate();
    return std::move(out_);
  }

 private:
  const Communication& at(const Member& m) const { return communication_of(job_, m); }

  /// What is there and what is missing. Ranks are missing if the job, or the group of any
  /// communication, has more ranks than there are files. If nothing says how many there are, one
  /// file alone is too few.
  void start() {
    out_.world_size = job_.world_size;
    out_.communication_unknown = job_.communication_unknown;
    out_.cpu_device = job_.cpu_device;
    out_.device = job_.device;
    out_.times_unknown = !job_.has_durations;
    if (out_.times_unknown) out_.communication_unknown = true;
    out_.clock_residual_ns = matched_.clock_residual_ns;
    out_.notes = job_.notes;
    out_.notes.insert(out_.notes.end(), matched_.notes.begin(), matched_.notes.end());
    int needed = job_.world_size;
    bool any = false;
    for (const RankActivity& r : job_.ranks) {
      out_.has_steps |= !r.steps.empty();
      out_.has_device |= !r.compute.empty() || !r.copies.empty() || !r.communications.empty();
      for (const Communication& c : r.communications)
        any = true, needed = std::max(needed, c.group_size);
    }
    out_.computation_unknown = job_.computation_unknown || out_.times_unknown || !out_.has_device;
    const int present = static_cast<int>(job_.ranks.size());
    if (any && needed < 0 && present > 1)
      out_.notes.push_back(fmt::format(
          "no file says how many ranks the job has, so the {} given are taken as all", present));
    out_.ranks_missing = any && (needed < 0 ? present < 2 : present < needed);
    if (out_.world_size < 0) out_.world_size = needed;
    apart_ = !any && present > 1 && out_.has_steps && !out_.communication_unknown;
    if (apart_)
      out_.notes.push_back(
          "the traces hold no communication between the ranks; each rank runs by itself, and "
          "shares of the step are means over ranks");
  }

  void build_rows() {
    Transfers transfers = transfers_of(job_, matched_);
    splits_ = std::move(transfers.ns);
    for (const Matched& m : matched_.collectives) out_.collectives.push_back(row_of(m));
    out_.of_several_runs = 3 * transfers.diverging > 2 * matched_.collectives.size();
    if (transfers.diverging > 0)
      out_.notes.push_back(
          fmt::format("{} collectives end at different times on different ranks, so their wait is "
                      "not split from their transfer",
                      transfers.diverging));
  }

  /// One line of the table of collectives. Members may state different things, since one rank's
  /// record may lack a size or a group; the first or the largest statement counts.
  CollectiveRow row_of(const Matched& m) {
    const Communication& first = at(m.members.front());
    CollectiveRow row;
    std::int64_t bus_bytes = -1, longest = 0, latest = INT64_MIN;
    int last = -1;
    for (const Member& member : m.members) {
      const Communication& c = at(member);
      if (row.op == CommOp::unknown) row.op = c.op;
      if (c.bytes > row.bytes.value_or(-1)) row.bytes = c.bytes, row.bytes_deduced = c.deduced;
      if (c.group_size > 0 && !row.ranks) row.ranks = c.group_size;
      bus_bytes = std::max(bus_bytes, c.bus_bytes);
      longest = std::max(longest, c.span.length());
      const std::int64_t start = c.span.start_ns + matched_.clock_offset_ns[to_index(member.rank)];
      if (start > latest) latest = start, last = job_.ranks[to_index(member.rank)].rank;
    }
    if (!row.ranks && m.complete) row.ranks = static_cast<int>(m.members.size());
    const RankActivity& owner = job_.ranks[to_index(m.members.front().rank)];
    if (first.step >= 0) row.step = owner.steps[to_index(first.step)].number;
    row.duration_s = in_seconds(longest);
    if (const std::int64_t moved = moved_ns(m.members.front()); moved >= 0) {
      row.transfer_s = in_seconds(moved);
      row.skew_s = in_seconds(longest - moved);
      if (m.members.size() > 1) row.last_rank = last;
    }
    add_bandwidths(row, bus_bytes);
    return row;
  }

  std::int64_t moved_ns(const Member& m) const {
    return splits_[to_index(m.rank)][to_index(m.index)];
  }

  /// `uneven`: bytes that crossed the network if the splits of an all-to-all say so, else -1.
  static void add_bandwidths(CollectiveRow& row, std::int64_t uneven) {
    if (!row.bytes || !row.ranks || *row.bytes == 0) return;
    const std::optional<double> factor = bus_factor(row.op, *row.ranks);
    if (!factor) return;
    const auto bytes = static_cast<double>(*row.bytes);
    const double bus_bytes = uneven >= 0 ? static_cast<double>(uneven) : bytes * *factor;
    if (row.transfer_s && *row.transfer_s > 0) {
      row.algbw_bytes_per_s = bytes / *row.transfer_s;
      row.busbw_bytes_per_s = bus_bytes / *row.transfer_s;
    } else if (!row.transfer_s && row.duration_s > 0) {
      row.busbw_at_least_bytes_per_s = bus_bytes / row.duration_s;
    }
  }

  /// Upper bound of a lone rank's transfer, by operation, bytes and group: the least duration over
  /// repetitions of the same collective.
  using Durations = std::map<std::tuple<CommOp, std::int64_t, std::int32_t>, std::int64_t>;
  static Durations least_durations(const RankActivity& r) {
    Durations least;
    for (const Communication& c : r.communications) {
      if (c.bytes < 0) continue;
      std::int64_t& ns = least.try_emplace({c.op, c.bytes, c.group}, INT64_MAX).first->second;
      ns = std::min(ns, c.span.length());
    }
    return least;
  }

  /// The activity of each rank as interval sets. A communication whose transfer is known is split
  /// at its end less the transfer: waiting before, moving data after. Of any other, the least
  /// duration of its kind bounds the transfer from above (transfer_most).
  void build_sets() {
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      const RankActivity& rank = job_.ranks[r];
      const auto least = least_durations(rank);
      std::vector<Span> all, transfer, wait, unsplit, most;
      for (std::size_t i = 0; i < rank.communications.size(); ++i) {
        const Communication& c = rank.communications[i];
        all.push_back(c.span);
        const std::int64_t moved = splits_[r][i];
        if (moved >= 0) {
          wait.push_back({c.span.start_ns, c.span.end_ns - moved});
          transfer.push_back({c.span.end_ns - moved, c.span.end_ns});
          most.push_back(transfer.back());
        } else {
          unsplit.push_back(c.span);
          const auto found = least.find({c.op, c.bytes, c.group});
          most.push_back({found == least.end() ? c.span.start_ns : c.span.end_ns - found->second,
                          c.span.end_ns});
        }
      }
      std::vector<Span> loading;
      for (const PhaseSpan& p : rank.phases)
        if (p.phase == StepPhase::data_loading) loading.push_back(p.span);
      RankSets& s = sets_.emplace_back();
      s.compute = union_of(rank.compute);
      s.communication = union_of(std::move(all));
      s.device = union_of(union_of(s.compute, s.communication), union_of(rank.copies));
      s.transfer = union_of(std::move(transfer));
      s.wait = union_of(std::move(wait));
      s.unsplit = union_of(std::move(unsplit));
      s.transfer_most = union_of(std::move(most));
      s.loading = union_of(std::move(loading));
    }
  }

  /// Exposed time of each collective by itself. The average over all of them would hide the last
  /// bucket, which no computation can cover.
  void expose_rows() {
    if (out_.computation_unknown) return;
    for (std::size_t i = 0; i < matched_.collectives.size(); ++i) {
      const std::vector<Member>& members = matched_.collectives[i].members;
      double sum = 0;
      for (const Member& m : members) {
        const Span& span = at(m).span;
        const SpanSet& compute = sets_[to_index(m.rank)].compute;
        sum += span.seconds() - seconds_of(clipped(compute, span));
      }
      out_.collectives[i].exposed_s = std::max(0.0, sum / static_cast<double>(members.size()));
    }
  }

  Busy of_ranks(const std::vector<Busy>& all) const {
    return apart_ ? mean_of(all) : over_ranks(all);
  }

  /// Busy times of each rank: over the file, and over its regular steps. A predicted Timeline
  /// repeats (Job::cycle), so its steps are all there is.
  void measure_ranks() {
    std::vector<Busy> whole, doubles, in_steps;
    std::set<std::int64_t> left_out;
    if (!out_.path.no_common_step) left_out = out_.path.left_out();
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      const RankActivity& rank = job_.ranks[r];
      const auto over = [&](const std::vector<StepSpan>& steps) {
        Busy sum;
        for (const Span& window : runs_of_steps(steps)) sum += measure(sets_[r], &window);
        return sum;
      };
      const bool steps_are_all = job_.cycle && !rank.steps.empty();
      whole.push_back(steps_are_all ? over(rank.steps) : measure(sets_[r], nullptr));
      doubles.push_back(steps_are_all ? whole.back() : measure_as_doubles(rank));
      out_.ranks.push_back({rank.rank, rank.source, whole.back(), {}, matched_.clock_offset_ns[r]});
      std::vector<StepSpan> regular = rank.steps;
      std::erase_if(regular, [&](const StepSpan& s) { return left_out.contains(s.number); });
      if (regular.empty()) continue;
      in_steps.push_back(over(regular));
      out_.may_communicate_share += share_in(runs_of_steps(regular), rank.may_communicate) /
                                    static_cast<double>(job_.ranks.size());
      out_.ranks.back().per_step = over(regular);
      out_.ranks.back().per_step *=
          1 / static_cast<double>(regular.size() * to_index(job_.updates));
    }
    note_may_communicate();
    out_.whole = mean_of(whole);
    out_.whole_as_doubles = mean_of(doubles);
    out_.in_steps = of_ranks(in_steps);
  }

  static double share_in(const std::vector<Span>& windows, const std::vector<Span>& spans) {
    const SpanSet all = union_of(spans);
    double within = 0, length = 0;
    for (const Span& w : windows) within += seconds_of(clipped(all, w)), length += w.seconds();
    return length > 0 ? within / length : 0;
  }

  void note_may_communicate() {
    out_.may_communicate = job_.may_communicate;
    if (!job_.may_communicate.empty())
      out_.notes.push_back(fmt::format(
          "some kernels sound like communication, but are of no library known by such names. They "
          "count as computation, {} of the step: {}",
          format_percent(out_.may_communicate_share), join(job_.may_communicate, "; ")));
  }

  /// A row for each step number, averaged over the ranks that have it, and the median step T_n. Cut
  /// steps do not count for the median unless all are cut.
  void measure_steps() {
    std::map<std::int64_t, StepRow> rows;  // durations: sums over the ranks at first
    std::map<std::int64_t, std::vector<Busy>> busy;
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      const std::vector<StepSpan>& steps = job_.ranks[r].steps;
      const std::vector<Span> windows = windows_of_steps(job_.ranks[r]);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        StepRow& row = rows[steps[i].number];
        busy[steps[i].number].push_back(measure(sets_[r], &windows[i]));
        row.duration_s += steps[i].span.seconds();
        row.length_s += steps[i].time().seconds();
        row.cut |= !steps[i].is_whole();
        row.label = steps[i].label();
        row.marks = std::max(1, static_cast<int>(steps[i].marks.size()));
      }
    }
    std::vector<double> durations;
    const bool all_cut = std::ranges::all_of(rows, [](const auto& row) { return row.second.cut; });
    for (auto& [number, row] : rows) {
      const auto ranks = static_cast<double>(busy[number].size());
      row.number = number;
      row.duration_s /= ranks, row.length_s /= ranks;
      row.busy = of_ranks(busy[number]);
      const auto gain = out_.path.by_step.find(number);
      if (gain != out_.path.by_step.end()) row.gain = gain->second;
      const bool of_all = out_.path.no_common_step || !out_.path.of_some_ranks.contains(number);
      if (of_all && (all_cut || !row.cut)) durations.push_back(row.length_s);
      out_.steps.push_back(std::move(row));
    }
    if (!durations.empty()) out_.step_s = median(durations) / job_.updates;
    measure_marks();
    out_.updates = job_.updates;
    out_.one_rank = job_.one_rank;
    if (out_.step_s && *out_.step_s > 0 && job_.one_rank) relate_to_one_rank();
  }

  void measure_marks() {
    std::map<std::int64_t, std::vector<double>> marks;
    for (const RankActivity& r : job_.ranks)
      for (const auto& [number, ns] : r.marks_ns) marks[number].push_back(in_seconds(ns));
    for (const auto& [number, s] : marks) out_.marks_s.push_back(mean(s));
    if (marks.empty())
      for (const StepRow& s : out_.steps) out_.marks_s.push_back(s.duration_s);
  }

  /// Relates T_n to T_1. A trace in which hardly anything was computed has no T_1: no job trains
  /// without computation, so the device was not recorded.
  void relate_to_one_rank() {
    constexpr double kLeastComputation_s = 20e-6;  // a handful of kernels
    double computed_s = 0;
    for (const StepRow& s : out_.steps) computed_s = std::max(computed_s, s.busy.compute_s);
    if (out_.computation_unknown || computed_s < kLeastComputation_s) {
      out_.notes.push_back(
          fmt::format("no scaling factor: {} recorded in a step, so it is not known what a rank "
                      "takes alone. Record the device's activity, and leave no kernel out",
                      out_.computation_unknown
                          ? std::string("no activity of a device is")
                          : fmt::format("{} of computation are", format_time(computed_s))));
      return;
    }
    const doc::ScalingFactor factor = doc::scaling_factor_of(job_.one_rank->step_s, *out_.step_s);
    out_.scaling_factor = factor.value;
    if (!factor.value) out_.notes.push_back(factor.why_none);
  }

  std::string label_of(std::int64_t step) const {
    const auto found = std::ranges::find(out_.steps, step, &StepRow::number);
    return found == out_.steps.end() ? std::to_string(step) : found->label;
  }

  void find_late_ranks() {
    std::map<int, int> times;
    for (const CollectiveRow& row : out_.collectives)
      if (row.last_rank && row.skew_s) ++times[*row.last_rank];
    for (std::size_t r = 0; r < out_.ranks.size() && !times.empty(); ++r) {
      out_.ranks[r].times_last = times[out_.ranks[r].rank];
      if (!out_.path.lateness_s.empty())
        out_.ranks[r].delay_per_step_s = out_.path.lateness_s[r] / job_.updates;
    }
  }

  void note_steps_of_some() {
    const std::set<std::int64_t>& some = out_.path.of_some_ranks;
    if (some.empty() || out_.path.no_common_step) return;
    out_.notes.push_back(fmt::format(
        "{} not whole in the traces of all ranks. The verdict, its causes and its ceilings leave "
        "out such steps",
        some.size() == 1 ? fmt::format("step {} is", label_of(*some.begin()))
                         : fmt::format("{} steps ({} to {}) are", some.size(),
                                       label_of(*some.begin()), label_of(*some.rbegin()))));
  }

  /// One note for each step that does not repeat, and for each that the recording's end made
  /// longer.
  void note_irregularities() {
    for (const Irregularity& i : out_.path.irregular) {
      const std::string who = i.communication ? std::string("communication")
                              : i.rank        ? fmt::format("rank {}", *i.rank)
                                              : std::string("every rank");
      out_.notes.push_back(fmt::format(
          "step {}: {} took {} longer than in the median step{}. This does not repeat, so the "
          "verdict leaves the step out{}",
          label_of(i.step), who, format_time(i.longer_s),
          i.where ? fmt::format(", in {}", name_of(*i.where)) : "",
          i.held_up
              ? fmt::format(", with step {}, in which the others wait for it", label_of(*i.held_up))
              : ""));
    }
    for (const std::int64_t step : out_.path.cut_longer)
      out_.notes.push_back(
          fmt::format("step {} is left out of the verdict: the recording ends in it, so it does "
                      "not show what runs after the step's mark",
                      label_of(step)));
  }

  /// Bytes a rank, of the communications for which `counts` holds and whose size is known.
  std::optional<std::int64_t> mean_bytes(const auto& counts) const {
    std::optional<double> sum;
    for (const RankActivity& r : job_.ranks)
      for (const Communication& c : r.communications)
        if (c.bytes >= 0 && counts(c)) sum = sum.value_or(0) + static_cast<double>(c.bytes);
    if (!sum) return std::nullopt;
    const auto ranks = static_cast<double>(job_.ranks.size());
    return static_cast<std::int64_t>(std::min(*sum / ranks, 9e18));
  }

  /// In two versions: sizes that communications state themselves, and with those that were deduced
  /// from annotations.
  void sum_bytes() {
    const auto is_gradient = [](const Communication& c) {
      return c.gradients && carries_gradients(c.op);
    };
    out_.collective_bytes = mean_bytes([](const Communication& c) { return !c.deduced; });
    out_.gradient_bytes =
        mean_bytes([&](const Communication& c) { return !c.deduced && is_gradient(c); });
    out_.collective_bytes_deduced = mean_bytes([](const Communication&) { return true; });
    out_.gradient_bytes_deduced = mean_bytes(is_gradient);
    if (!out_.collective_bytes && out_.collective_bytes_deduced)
      out_.notes.push_back(
          "no communication states its size. Sizes are deduced from the inputs of the annotation "
          "around each launch, and totals of stated bytes stay unknown");
  }

  /// Use of the network, twice: of the NIC's counters over the whole time, and of bus bytes over
  /// the time in which collectives ran.
  void relate_to_line_rate() {
    out_.line_rate_bytes_per_s = job_.line_rate_bytes_per_s;
    if (!job_.line_rate_bytes_per_s || *job_.line_rate_bytes_per_s <= 0) return;
    std::vector<double> means;
    for (const doc::Counter& c : job_.counters) {
      if (c.name.find("nic_sent") == std::string::npos &&
          c.name.find("nic_received") == std::string::npos)
        continue;
      if (!c.samples.empty()) means.push_back(mean(mapped(c.samples, &doc::CounterSample::value)));
    }
    if (!means.empty())
      out_.utilisation_step = *std::ranges::max_element(means) / *job_.line_rate_bytes_per_s;
    double bus_bytes = 0;
    for (const CollectiveRow& row : out_.collectives)
      if (row.bytes && row.ranks)
        bus_bytes += static_cast<double>(*row.bytes) * bus_factor(row.op, *row.ranks).value_or(0);
    if (bus_bytes > 0 && out_.whole.communication_s > 0)
      out_.utilisation_communicating =
          bus_bytes / (out_.whole.communication_s * *job_.line_rate_bytes_per_s);
  }

  const Job& job_;
  MatchResult matched_;
  Breakdown out_;
  bool apart_ = false;  // ranks that exchange nothing: no idle time is another's fault
  std::vector<std::vector<std::int64_t>> splits_;  // transfer in ns per communication, -1 unknown
  std::vector<RankSets> sets_;
};

}  // namespace

Breakdown break_down(const Job& job) {
  const std::optional<Job> periods = in_periods(job);
  Breakdown out = Analysis(periods ? *periods : job).run();
  out.buckets = check_buckets(job);
  return out;
}

}  // namespace linerate::trace
