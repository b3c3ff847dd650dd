// How late a rank comes: how much longer than the others it takes on its own, between two moments
// at which they all met. ceilings.cpp names late ranks by it, and replays the job without their
// lateness.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/explain/program.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// How late a lane is in a step, or over a stretch. A stretch leads from waits that all ranks have
/// to the next such waits.
struct Late {
  std::int64_t ns = 0;  // against the rank in the middle of the others; negative: it came before
  std::array<std::int64_t, kPhases> by_phase{};  // sums to ns
};
/// By lane, and by number of the step; -1: unknown.
using LateSteps = std::vector<std::map<std::int64_t, Late>>;

/// Every rank against the one in the middle (of two: the earlier one) of the others. A stretch
/// counts in the step of its first communication.
LateSteps late_stretches(const Program& program);
/// Adds to `cuts` what makes every rank come with the first one. With `only`, it is what makes this
/// lane come with the median of the others. What takes longer than theirs is cut. This includes a
/// later begin of the lane, and the time after the last wait, for which the others would wait in
/// the next step.
void cut_lateness(const Program& program, Cuts& cuts, std::optional<std::size_t> only = {});
/// Adds to `cuts` what makes every rank begin with the first one.
void cut_late_starts(const Program& program, Cuts& cuts);

/// As many as the program has points, all 0.
Cuts no_cuts(const Program& program);

// How much of each communication moved data, and how much of it was waiting for late ranks.

struct Transfers {
  /// By rank and communication: so many ns at its end moved data; before them it waited for the
  /// last rank. -1: unknown, as for a collective whose ranks are not all there.
  std::vector<std::vector<std::int64_t>> ns;
  std::size_t diverging = 0;  // collectives that should end everywhere at once, and did not
};

/// For a synchronising collective it is the least duration over its ranks: the last rank to come
/// waited for nobody. Ranks 0, 1 and 2 start at 1, 3 and 2 ms and end at 7 ms. Their durations are
/// 6, 4 and 5 ms. So data moved for 4 ms, and the ranks waited for 2, 0 and 1 ms before that.
///
/// Ends that disagree by more than scheduling explains contradict this. Such a collective is not
/// split, and counts as diverging. Recordings without durations have no split at all.
Transfers transfers_of(const Job& job, const MatchResult& matched);

// How long a rank was busy with what: lengths of interval sets. Definitions: docs/explain.md.

/// The activity of one rank as interval sets.
struct RankSets {
  SpanSet compute = {}, communication = {}, device = {}, transfer = {}, wait = {}, unsplit = {},
          transfer_most = {}, loading = {};
};

/// Everything within `window`; a null window is the whole file. Exposed communication is parted
/// into transfer, wait and unsplit, in this order of precedence: one moment counts once.
[[nodiscard]] Busy measure(const RankSets& s, const Span* window);
/// Over the whole file, from stamps as any JSON reader gets them: microseconds in doubles.
[[nodiscard]] Busy measure_as_doubles(const RankActivity& rank);

[[nodiscard]] Busy mean_of(const std::vector<Busy>& all);
/// The mean, but the lower median of idle times. If rank 1 sleeps and ranks 0 and 2 wait for it in
/// a collective, only rank 1's device is idle. That job is late, and not idle.
[[nodiscard]] Busy over_ranks(const std::vector<Busy>& all);
Busy& operator+=(Busy& sum, const Busy& b);
Busy& operator*=(Busy& busy, double factor);

}  // namespace linerate::trace
