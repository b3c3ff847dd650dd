// Two mechanisms join steps, both by groups of positions (Group) that regroup() turns into new
// steps.
//
// join_marks() repairs what a mark is. With four passes to an update and a mark for each, marks 3,
// 7 and 11 close an update. Marks are four apart, so 4 to 7 and 8 to 11 become steps "4-7" and
// "8-11". A recording that begins at mark 2 has only marks 2 and 3 of the first update, which are
// left out.
//
// in_periods() judges steps that differ on purpose. With inverses of K-FAC in every fourth step,
// steps take 20, 20, 20 and 50 ms. The median step of 20 ms hides the inverses, while the job needs
// 27.5 ms a step. So whole periods of 110 ms are judged, and T_n is a quarter of their median.
#include "linerate/trace/job/periods.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/trace/job/by_start.hpp"

namespace linerate::trace {
namespace {

/// Positions of the first and the last mark of a new step.
struct Group {
  std::size_t first = 0, last = 0;
};

/// The steps of a group as one: spans are joined, and a flag is set if it is set on any of them.
StepSpan one_step_of(const std::vector<StepSpan>& steps, const Group& g) {
  if (g.first == g.last) return steps[g.first];
  StepSpan one = steps[g.first];
  one.marks.clear();
  one.nothing_ran = false;
  for (std::size_t i = g.first; i <= g.last; ++i) {
    const StepSpan& s = steps[i];
    one.span = hull_of(one.span, s.span);
    if (one.on_device && s.on_device)
      one.on_device = hull_of(*one.on_device, *s.on_device);
    else
      one.on_device.reset();
    one.updates |= s.updates;
    one.cut |= s.cut;
    one.partial |= s.partial;
    const auto& marks = s.marks;
    if (marks.empty())
      one.marks.push_back(s);
    else
      one.marks.insert(one.marks.end(), marks.begin(), marks.end());
  }
  return one;
}

/// Gives the rank these steps in place of its own. Communications of a step that is in no group
/// become those of no step, and passes of such a step are dropped.
void regroup(RankActivity& rank, const std::vector<Group>& groups) {
  std::vector<std::int32_t> places(rank.steps.size(), -1);
  std::vector<StepSpan> steps;
  for (const Group& g : groups) {
    for (std::size_t i = g.first; i <= g.last; ++i)
      places[i] = static_cast<std::int32_t>(steps.size());
    steps.push_back(one_step_of(rank.steps, g));
  }
  const auto move = [&places](std::int32_t& step) {
    if (step >= 0) step = places[to_index(step)];
  };
  for (Communication& c : rank.communications) move(c.step);
  for (Announced& a : rank.announced) move(a.step);
  for (BackwardPass& p : rank.passes) move(p.step);
  std::erase_if(rank.passes, [](const BackwardPass& p) { return p.step < 0; });
  rank.steps = std::move(steps);
}

bool follows(const RankActivity& rank, std::size_t i) {
  return i > 0 && rank.steps[i].number == rank.steps[i - 1].next_number();
}

/// Groups of `length` marks that follow each other, each ending with one that closes. If more than
/// `length` marks come before a closing one, only the last `length` of them are taken.
std::vector<Group> groups_of(const RankActivity& rank, std::size_t length,
                             const std::vector<bool>& closes) {
  std::vector<Group> groups;
  std::size_t in_row = 0;  // that follow each other, since the last that closed
  for (std::size_t i = 0; i < rank.steps.size(); ++i) {
    if (!follows(rank, i)) in_row = 0;
    ++in_row;
    if (!closes[i]) continue;
    if (in_row >= length) groups.push_back({i + 1 - length, i});
    in_row = 0;
  }
  return groups;
}

/// Bytes of the gradient exchanges of each step; one for each exchange of unknown size.
std::vector<std::int64_t> exchanged_by_step(const RankActivity& rank) {
  std::vector<std::int64_t> bytes(rank.steps.size(), 0);
  const auto add = [&bytes](std::int32_t step, CommOp op, std::int64_t n) {
    if (step >= 0 && carries_gradients(op))
      bytes[to_index(step)] += std::clamp<std::int64_t>(n, 1, std::int64_t{1} << 40);
  };
  for (const Communication& c : rank.communications)
    if (c.gradients) add(c.step, c.op, c.bytes);
  if (rank.communications.empty())
    for (const Announced& a : rank.announced) add(a.step, a.op, a.bytes);
  return bytes;
}

/// Which marks end an update of the parameters. An optimizer ran in them. If no optimizer is
/// recorded, they exchange more than a tenth of what any mark does, so that a loss does not count.
/// All marks end one if neither is in the trace.
std::vector<bool> closing_marks(const RankActivity& rank) {
  std::vector<bool> closes = mapped(rank.steps, &StepSpan::updates);
  if (std::ranges::find(closes, true) != closes.end()) return closes;
  const std::vector<std::int64_t> bytes = exchanged_by_step(rank);
  const std::int64_t most = bytes.empty() ? 0 : *std::ranges::max_element(bytes);
  for (std::size_t i = 0; i < closes.size(); ++i) closes[i] = most == 0 || bytes[i] * 10 > most;
  return closes;
}

/// How many marks that train lie between closing marks: the most common distance. If only one mark
/// closes, it is the number of marks up to it. Marks without a backward pass do not count, such as
/// those of a validation.
int marks_to_an_update(const RankActivity& rank) {
  std::vector<bool> trains(rank.steps.size(), rank.passes.empty());
  for (const BackwardPass& p : rank.passes) trains[to_index(p.step)] = true;
  const std::vector<bool> closes = closing_marks(rank);
  std::map<int, int> distances;
  int since = 0, first = 0;
  bool whole = false;  // since the closing mark before
  for (std::size_t i = 0; i < closes.size(); ++i) {
    if (!follows(rank, i)) since = 0, whole = false;
    since += trains[i];
    if (!closes[i]) continue;
    if (whole) ++distances[since];
    first = std::max(first, since);
    since = 0, whole = true;
  }
  if (!distances.empty()) return std::max(1, most_common(distances));
  return std::max(1, first);
}

}  // namespace

/// First marks are joined to updates, if all ranks have whole ones. Then marks in which nothing ran
/// are added to the step before them, or dropped at the end of the recording. Last, pauses of the
/// host outside of the remaining steps are dropped.
void join_marks(Job& job) {
  for (RankActivity& r : job.ranks)
    for (const StepSpan& s : r.steps) r.marks_ns[s.number] = s.span.length();
  std::map<int, int> distances;
  for (const RankActivity& r : job.ranks)
    if (!r.steps.empty()) ++distances[marks_to_an_update(r)];
  const int marks = distances.empty() ? 1 : most_common(distances);
  std::vector<std::vector<Group>> groups;
  for (const RankActivity& r : job.ranks)
    groups.push_back(groups_of(r, to_index(marks),
                               marks > 1 ? closing_marks(r) : std::vector(r.steps.size(), true)));
  const bool some_lost = std::ranges::any_of(groups, [](const auto& g) { return g.empty(); });
  job.accumulation.marks = marks > 1 && !some_lost ? marks : 1;
  if (job.accumulation.marks > 1)
    job.notes.push_back(
        fmt::format("{} marks of the profiler make one step, which ends with the update of the "
                    "parameters; marks outside whole steps are left out",
                    marks));
  for (std::size_t r = 0; r < groups.size(); ++r) {
    RankActivity& rank = job.ranks[r];
    if (job.accumulation.marks > 1) regroup(rank, groups[r]);
    std::vector<Group> ran;  // with what is empty after it, but at the end of the recording
    for (std::size_t i = 0; i < rank.steps.size(); ++i)
      if (!rank.steps[i].nothing_ran)
        ran.push_back({i, i});
      else if (!ran.empty() && ran.back().last + 1 == i && follows(rank, i))
        ran.back().last = i;
    while (!ran.empty() && rank.steps[ran.back().last].nothing_ran) --ran.back().last;
    if (ran.size() < rank.steps.size()) regroup(rank, ran);
    if (rank.steps.empty() || !rank.pauses) continue;
    const Span within = {rank.steps.front().span.start_ns, rank.steps.back().span.end_ns};
    std::erase_if(*rank.pauses, [&within](const PhaseSpan& p) {
      return p.span.start_ns >= within.end_ns || p.span.end_ns <= within.start_ns;
    });
  }
}

namespace {

/// By step of a rank: a number that is equal for steps that are alike; 0: may be like any.
using Kinds = std::vector<std::uint64_t>;

/// Numbers values in the order in which they come, from 1.
template <typename T>
Kinds kinds_of(const std::vector<StepSpan>& steps, const std::vector<T>& values) {
  std::map<T, std::uint64_t> numbers;
  Kinds kinds;
  for (std::size_t i = 0; i < steps.size(); ++i)
    kinds.push_back(
        steps[i].is_whole() ? numbers.try_emplace(values[i], numbers.size() + 1).first->second : 0);
  return kinds;
}

/// What each step sent, in any order, and whether it updated parameters.
Kinds by_communication(const RankActivity& rank) {
  std::vector<std::multiset<std::tuple<CommOp, std::int64_t, std::int32_t>>> sent(
      rank.steps.size());
  for (const Communication& c : rank.communications)
    if (c.step >= 0) sent[to_index(c.step)].insert({c.op, c.bytes, c.group});
  for (std::size_t i = 0; i < sent.size(); ++i)
    if (rank.steps[i].updates) sent[i].insert({CommOp::unknown, -2, -2});
  return kinds_of(rank.steps, sent);
}

/// The kinds of operators or kernels that ran in each step. Empty: unknown.
Kinds by_computation(const RankActivity& rank) {
  if (rank.compute_names.empty()) return {};
  const std::vector<Span> windows = windows_of_steps(rank);
  std::vector<std::set<std::uint64_t>> names(windows.size());
  if (!std::is_sorted(windows.begin(), windows.end())) return {};
  for (std::size_t i = 0; i < rank.compute.size(); ++i) {
    const std::int64_t start = rank.compute[i].start_ns;
    const Span* window = last_begun(windows, start);
    if (window != nullptr && start < window->end_ns)
      names[to_index(window - windows.data())].insert(rank.compute_names[i]);
  }
  return kinds_of(rank.steps, names);
}

/// Place of a step in a period of `length`.
std::size_t place_in(const StepSpan& step, std::size_t length) {
  const auto n = static_cast<std::int64_t>(length);
  return to_index((step.number % n + n) % n);
}

std::vector<std::vector<double>> seconds_by_place(const std::vector<StepSpan>& steps,
                                                  std::size_t length) {
  std::vector<std::vector<double>> places(length);
  for (const StepSpan& s : steps)
    if (s.is_whole()) places[place_in(s, length)].push_back(s.time().seconds());
  return places;
}

/// The least period in which kinds repeat without an exception, seen at least twice; 1: none. Steps
/// of kinds A A B A A B have period 3: places 0 and 1 always hold A, place 2 always holds B. One
/// exception is enough to refuse, because a period must hold for the steps that were not recorded.
std::size_t period_of(const std::vector<StepSpan>& steps, const Kinds& kinds) {
  if (kinds.empty()) return 1;
  for (std::size_t length = 1; 2 * length <= steps.size(); ++length) {
    std::vector<std::set<std::uint64_t>> places(length);
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (kinds[i] != 0) places[place_in(steps[i], length)].insert(kinds[i]);
    const bool repeats =
        std::ranges::all_of(places, [](const auto& place) { return place.size() == 1; });
    if (repeats) return length;
  }
  return 1;
}

/// The period in which one place takes clearly longer than all others, three times or more; 1:
/// none. The shortest step of that place must be longer than the longest of all others, by a tenth
/// of their median. Noise hardly orders eight steps so.
std::size_t period_of_lengths(const std::vector<StepSpan>& steps) {
  constexpr std::size_t kLeastPeriods = 3, kLeastSteps = 8;
  constexpr double kClearly = 0.1;
  if (steps.size() < kLeastSteps) return 1;
  for (std::size_t length = 2; kLeastPeriods * length <= steps.size(); ++length) {
    const auto places = seconds_by_place(steps, length);
    for (std::size_t p = 0; p < length; ++p) {
      if (places[p].size() < kLeastPeriods) continue;
      std::vector<double> others;
      for (std::size_t o = 0; o < length; ++o)
        if (o != p) others.insert(others.end(), places[o].begin(), places[o].end());
      if (others.empty()) continue;
      const double least = *std::ranges::min_element(places[p]);
      if (least > *std::ranges::max_element(others) + kClearly * median(others)) return length;
    }
  }
  return 1;
}

/// Whether the mean over a period differs from the median step by more than 2 %. Only then are
/// periods worth their cost: they leave out steps, and fewer values are left for medians.
bool misleads(const std::vector<StepSpan>& steps, std::size_t length) {
  constexpr double kWorthIt = 0.02;
  double sum = 0;
  std::vector<double> all;
  for (const std::vector<double>& place : seconds_by_place(steps, length)) {
    if (place.empty()) return false;
    sum += median(place);
    all.insert(all.end(), place.begin(), place.end());
  }
  return std::abs(sum / static_cast<double>(length) - median(all)) > kWorthIt * median(all);
}

/// The place that ends a period. It is the one with which most whole periods fit into the
/// recording. Of several such places, the one with the longest steps is the last.
std::size_t last_place(const std::vector<StepSpan>& steps, std::size_t length) {
  std::map<std::pair<std::size_t, double>, std::size_t> best;
  const auto places = seconds_by_place(steps, length);
  for (std::size_t p = 0; p < length; ++p) {
    std::size_t whole = 0;
    for (std::size_t i = length - 1; i < steps.size(); ++i)
      whole += place_in(steps[i], length) == p;
    best[{whole, places[p].empty() ? 0 : median(places[p])}] = p;
  }
  return best.rbegin()->second;
}

/// The period of a rank's steps; 1: they are alike, or the recording has gaps. Three signs are
/// tried, the surest one first: what steps sent, what they computed, how long they took.
std::size_t period_of(const RankActivity& rank) {
  const auto& steps = rank.steps;
  if (steps.size() < 4) return 1;
  for (std::size_t i = 1; i < steps.size(); ++i)
    if (!follows(rank, i)) return 1;
  for (const std::size_t length :
       {period_of(steps, by_communication(rank)), period_of(steps, by_computation(rank)),
        period_of_lengths(steps)})
    if (length > 1 && misleads(steps, length)) return length;
  return 1;
}

}  // namespace

std::optional<Job> in_periods(const Job& job) {
  // The T_1 of a document is that of a step.
  if (job.cycle || job.updates > 1) return std::nullopt;
  std::size_t length = 0;
  const RankActivity* first = nullptr;
  for (const RankActivity& r : job.ranks) {
    if (r.steps.empty()) continue;
    const std::size_t mine = period_of(r);
    if (first != nullptr && mine != length) return std::nullopt;
    if (first == nullptr) first = &r, length = mine;
  }
  if (length < 2) return std::nullopt;
  const std::size_t last = last_place(first->steps, length);
  Job joined = job;
  joined.updates = static_cast<int>(length);
  joined.notes.push_back(fmt::format(
      "steps repeat every {0} and are not alike. Time is judged over whole periods of {0} steps; "
      "T_1 and T_n are their parts for one step. Steps outside whole periods are left out",
      length));
  for (RankActivity& r : joined.ranks) {
    const std::vector<Group> groups = groups_of(
        r, length, mapped(r.steps, [&](const StepSpan& s) { return place_in(s, length) == last; }));
    if (groups.empty() && !r.steps.empty()) return std::nullopt;
    regroup(r, groups);
  }
  return joined;
}

// A profiler with a schedule writes one file for each cycle. Rank 0 may come with steps 5 to 7 in
// one file and 25 to 27 in another. Files of one rank are sorted by the time at which they were
// recorded and appended. Two files of one rank that overlap in time are not cycles, and refused.

namespace {

Span recorded_span(const RankActivity& r) {
  return hull_of_all(r.compute, r.host, r.steps, r.communications);
}

/// Renumbers steps if the cycle before already used their numbers. After steps 0 to 2 come 4 to 6:
/// the gap says that the time between two cycles belongs to no step.
void renumber(const std::vector<StepSpan>& before, std::vector<StepSpan>& steps) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // beyond it sums may leave 64 bits
  if (before.empty() || steps.empty() || steps.front().number > before.back().number) return;
  if (before.back().number > kMost || steps.front().number < 0) return;
  const std::int64_t by = before.back().number + 2 - steps.front().number;
  for (StepSpan& s : steps) s.number += by;
}

template <typename T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

/// Positions of steps in `from` go on after those of `to`.
void append_cycle(RankActivity& to, RankActivity& from) {
  renumber(to.steps, from.steps);
  const auto behind = static_cast<std::int32_t>(to.steps.size());
  const auto move_step = [behind](std::int32_t& step) { step += step >= 0 ? behind : 0; };
  for (Communication& c : from.communications) move_step(c.step);
  for (Announced& a : from.announced) move_step(a.step);
  for (BackwardPass& p : from.passes) move_step(p.step);
  std::int64_t issued = -1;
  for (const Communication& c : to.communications) issued = std::max(issued, c.issued);
  for (Communication& c : from.communications)
    if (c.issued >= 0) c.issued += issued + 1;
  append(to.steps, from.steps);
  // A cycle whose names are unknown leaves room for those of the other.
  to.compute_names.resize(to.compute.size());
  from.compute_names.resize(from.compute.size());
  to.launch_sizes.resize(to.compute.size());
  from.launch_sizes.resize(from.compute.size());
  append(to.compute_names, from.compute_names);
  append(to.launch_sizes, from.launch_sizes);
  std::vector<std::vector<Span>*> lists;
  for_each_spans(from, [&](const char*, auto& list) { lists.push_back(&list); });
  auto next = lists.begin();
  for_each_spans(to, [&](const char*, auto& list) { append(list, **next++); });
  if (to.pauses && from.pauses)
    append(*to.pauses, *from.pauses);
  else
    to.pauses.reset();
  append(to.phases, from.phases);
  append(to.communications, from.communications);
  append(to.announced, from.announced);
  append(to.passes, from.passes);
}

}  // namespace

/// Sorted by rank and time, each recording either begins a rank or is appended to the one before
/// it.
void join_cycles(Job& job) {
  std::set<int> ranks;
  for (const RankActivity& r : job.ranks) ranks.insert(r.rank);
  if (ranks.size() == job.ranks.size()) return;
  std::ranges::stable_sort(
      job.ranks, {}, [](const RankActivity& r) { return std::pair(r.rank, recorded_span(r)); });
  std::vector<RankActivity> joined;
  std::int64_t end_ns = INT64_MIN;  // of the last of `joined`
  for (RankActivity& r : job.ranks) {
    const Span recorded = recorded_span(r);
    const bool another = joined.empty() || r.rank < 0 || joined.back().rank != r.rank;
    const bool same_time = !another && recorded.start_ns < end_ns;
    end_ns = recorded.end_ns;
    if (another) {
      joined.push_back(std::move(r));
      continue;
    }
    if (same_time)
      throw InputError(
          r.source,
          fmt::format(
              "is of rank {}, and so is {}, recorded at the same time; give each rank's trace once",
              r.rank, joined.back().source));
    append_cycle(joined.back(), r);
  }
  job.ranks = std::move(joined);
}

// One backward pass that stands for all. Passes with the same gradients in the same order form a
// kind, and the most common kind is the job's. A recording may hold other kinds, such as a first
// pass in another order. Each time of the result is then a median twice: over the passes of a rank,
// and over the ranks that nothing held up.

namespace {

/// As most steps have them; without records of passes one a mark.
int passes_to_an_update(const Job& job) {
  std::map<int, int> passes;
  for (const RankActivity& r : job.ranks) {
    std::map<std::int32_t, int> in_step;
    for (const BackwardPass& p : r.passes) ++in_step[p.step];
    for (const auto& [step, n] : in_step) ++passes[n];
  }
  return passes.empty() ? job.accumulation.marks : std::max(1, most_common(passes) / job.updates);
}

/// Elements, type, layer, rows, turn.
using Signature = std::vector<std::tuple<std::int64_t, DType, int, std::int64_t, int>>;

Signature signature_of(const std::vector<GradientRecord>& gradients) {
  return mapped(gradients, [](const GradientRecord& g) {
    return std::tuple(g.elements, g.dtype, g.layer, g.rows, g.turn);
  });
}

/// The last pass of each step: the one whose gradients are exchanged while it goes on.
std::vector<const BackwardPass*> last_passes(const RankActivity& rank) {
  std::map<std::int32_t, const BackwardPass*> last;
  for (const BackwardPass& p : rank.passes) last[p.step] = &p;
  return mapped(last, [](const auto& of_step) { return of_step.second; });
}

/// Those of them that have these gradients.
std::vector<const BackwardPass*> passes_like(const Signature& usual, const RankActivity& rank) {
  std::vector<const BackwardPass*> passes = last_passes(rank);
  std::erase_if(passes, [&](const BackwardPass* p) { return signature_of(p->gradients) != usual; });
  return passes;
}

/// The median of `time_of(pass)` over each rank's passes, typical of the ranks, in ns.
std::int64_t typical(const std::vector<std::vector<const BackwardPass*>>& ranks,
                     const auto& time_of) {
  std::vector<double> medians;
  for (const std::vector<const BackwardPass*>& passes : ranks) {
    if (passes.empty()) continue;
    medians.push_back(median(
        mapped(passes, [&](const BackwardPass* p) { return static_cast<double>(time_of(*p)); })));
  }
  return std::llround(typical_of_ranks(std::move(medians)));
}

}  // namespace

int turns_of(const Job& job) {
  if (!job.gradients.empty()) return job.gradients.back().turn + 1;
  int last = 0;
  for (const RankActivity& r : job.ranks)
    for (const Communication& c : r.communications)
      if (c.step >= 0 && c.gradients && carries_gradients(c.op)) last = std::max(last, c.turn);
  return last + 1;
}

std::string layer_name(const Job& job, int layer) {
  return fmt::format("layer{}", static_cast<int>(job.layers.size()) - 1 - layer);
}

std::string gradient_name(const Job& job, std::size_t gradient) {
  return fmt::format("{}.gradient{}", layer_name(job, job.gradients[gradient].layer), gradient);
}

double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double typical_of_ranks(std::vector<double> values) {
  const double most = lower_median(values) * (1 + kAlike);
  std::erase_if(values, [most](double v) { return v > most; });
  return median(values);
}

std::vector<const BackwardPass*> exchanging_passes(const Job& job, const RankActivity& rank) {
  return passes_like(signature_of(job.gradients), rank);
}

/// Medians of each gradient are taken by themselves, so their order could break by a little. Ready
/// times are therefore raised to that of the gradient before.
void find_typical_step(Job& job) {
  job.accumulation.passes = passes_to_an_update(job);
  std::map<Signature, int> counts;
  for (const RankActivity& r : job.ranks)
    for (const BackwardPass* p : last_passes(r)) ++counts[signature_of(p->gradients)];
  if (counts.empty()) return;
  const Signature usual = most_common(counts);
  std::vector<std::vector<const BackwardPass*>> ranks;
  const BackwardPass* any = nullptr;
  for (const RankActivity& r : job.ranks) {
    ranks.push_back(passes_like(usual, r));
    if (!ranks.back().empty()) any = ranks.back().back();
  }
  job.gradients = any->gradients;
  job.layers = any->layers;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < job.gradients.size(); ++i) {
    const std::int64_t ready =
        typical(ranks, [i](const BackwardPass& p) { return p.gradients[i].ready_ns; });
    before = job.gradients[i].ready_ns = std::max(before, ready);
  }
  for (std::size_t i = 0; i < job.layers.size(); ++i) {
    LayerRecord& layer = job.layers[i];
    layer.backward_ns =
        typical(ranks, [i](const BackwardPass& p) { return p.layers[i].backward_ns; });
    if (!layer.block) continue;
    for (const auto rows : {&doc::Block::rows_a, &doc::Block::rows_g})
      (*layer.block).*rows = typical(ranks, [&](const BackwardPass& p) {
        return p.layers[i].block.value_or(*layer.block).*rows;
      });
  }
}

}  // namespace linerate::trace
