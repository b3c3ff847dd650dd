// How late a rank comes: how much longer than the others it takes on its own, between two moments
// at which they all met. ceilings.cpp names late ranks by it, and ceilings.cpp replays
// the job without their lateness.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/explain/program.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// By lane and point, in ns: own time that is left out. A lane's first point has no own time before
/// it; its value says how much earlier the lane starts.
using Cuts = std::vector<std::vector<std::int64_t>>;

/// How late a lane is over one of its stretches (Lateness).
struct Late {
  std::int32_t lane = -1;
  std::int64_t step = -1;  // number of the step of its first communication; -1 unknown
  std::int64_t ns = 0;     // against the rank in the middle of the others; negative: it came before
  std::array<std::int64_t, kPhases> by_phase{};  // sums to ns
};

/// A stretch leads from waits that all ranks have to the next such waits, however many
/// communications are asked for in between. Ranks leave such a wait together, so their own times in
/// the stretch may be compared. The others notice a rank that takes longer at the next wait.
///
/// Example. In one stretch ranks 0, 1 and 2 take 10, 14 and 11 ms of own time. The middle of two
/// others is the earlier one, so ranks 0, 1 and 2 are compared with 11, 10 and 10 ms. Rank 0 is
/// early by 1 ms, rank 1 late by 4 ms, rank 2 late by 1 ms. The wait of a rank would not tell this,
/// because it depends on who was last.
///
/// References to `program` are kept, so it must outlive this object.
class Lateness {
 public:
  explicit Lateness(const Program& program);

  /// Every rank against the one in the middle (of two: the earlier one) of the others.
  std::vector<Late> all() const;
  /// Adds to `cuts` what makes every rank come with the first one. With `only`, it is what makes
  /// this lane come with the median of the others. What takes longer than theirs is cut. This
  /// includes a later begin of the lane, and the time after the last wait, for which the others
  /// would wait in the next step.
  void cut(Cuts& cuts, std::optional<std::int32_t> only = std::nullopt) const;
  /// Adds to `cuts` what makes every rank begin with the first one.
  void cut_starts(Cuts& cuts) const;

 private:
  /// Own time up to an issue that all its ranks have in common; or (collective -1) from the last of
  /// them to the last wait.
  struct Piece {
    std::int32_t collective = -1;
    std::size_t first = 0, last = 0;  // points
  };
  struct Stretch {
    std::int32_t collective = -1;  // the first one that is asked for, else the first one waited for
    bool opens = false;            // the first of its lane: ranks begin apart
    std::vector<Piece> pieces;
  };
  /// From the last wait that all ranks have to the end of the last step.
  struct Tail {
    std::int32_t behind = -1;  // Stretch::collective of the last stretch; -1: none
    std::int64_t step = -1;    // number of the last step
    Piece piece;
  };
  /// By lane and stretch: own time without the cuts.
  using Totals = std::vector<std::vector<std::int64_t>>;

  void add_stretches(std::size_t lane, const std::vector<bool>& met,
                     const std::vector<bool>& begins);
  void add_stretch(std::size_t lane, Stretch stretch);
  void add_tail(std::size_t lane, std::size_t first);
  void mark_gaps(std::size_t lane);
  std::int64_t length(std::int32_t lane, const Piece& piece, const Cuts& cuts) const;
  Totals totals(const Cuts& cuts) const;
  const Stretch* stretch_of(std::int32_t lane, std::int32_t collective) const;
  std::int64_t total_of(const Totals& totals, std::int32_t lane, std::int32_t collective) const;
  /// How much longer than `other` a lane takes over a stretch.
  struct Behind {
    std::int32_t other = -1;  // -1: no lane can be compared
    std::int64_t ns = 0;
  };
  /// Against the first of the others, or their lower median.
  Behind behind_of(std::int32_t lane, const Stretch& own, bool first,
                   const Totals& own_times) const;
  /// Returns what was cut.
  std::int64_t cut_stretch(const Stretch& own, std::int32_t lane, const Behind& late,
                           const Cuts& before, Cuts& cuts) const;
  std::int64_t tail_late_by(std::int32_t lane, bool first, const Cuts& before) const;
  /// Between the opening and the tail.
  std::int64_t most_late_between(std::int32_t lane, bool first, const Totals& own_times) const;
  /// Moves the lane's start earlier by `late`, but not by more than `most`: a profiler that starts
  /// late does not delay the job.
  void cut_start(std::int32_t lane, bool first, std::int64_t late, std::int64_t most,
                 Cuts& cuts) const;
  /// Up to `ns`, from the longest points first; returns what is left.
  std::int64_t cut_piece(std::int32_t lane, const Piece& piece, std::int64_t ns, Cuts& cuts) const;
  /// Whether points between two runs of steps (in_gap_) may be cut, too.
  enum class Gaps { keep, cut };
  std::int64_t cut_longest(std::int32_t lane, const Piece& piece, std::int64_t ns, Gaps gaps,
                           Cuts& cuts) const;
  void add_phases(Late& late, std::int32_t lane, const Stretch& stretch, int sign) const;

  const Program& program_;
  std::vector<std::vector<Stretch>> stretches_;        // by lane
  std::vector<std::vector<std::int32_t>> stretch_at_;  // by lane and Stretch::collective; -1: none
  std::vector<Tail> tails_;                            // by lane
  /// By lane and point: between two runs of steps, whose waits were not recorded.
  std::vector<std::vector<bool>> in_gap_;
};

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
  SpanSet compute, communication, device, transfer, wait, unsplit, transfer_most, loading;
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
