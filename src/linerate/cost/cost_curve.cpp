// Cuts a cost curve into straight pieces, for searches that prune by them (plan's optimal fusion).
// Between two joints a curve is a least or a largest of straight lines, so it bends where two of
// them meet. A stretch is cut as follows. Draw the straight line from end to end. If the curve lies
// on it, the stretch is one piece. Otherwise take the tangents of both ends and cut where they
// meet, then treat both parts alike.
//
// An example: min(1 + 2 S, 5 + S) between 0 and 10. The line from end to end is not the curve. The
// tangents are 1 + 2 S and 5 + S, and they meet at 4. Both parts are straight, so two pieces come
// out after three tests. With three lines the first cut may miss a bend, and the next cuts find it.
#include "linerate/cost/cost_curve.hpp"

#include <cmath>
#include <cstdint>

namespace linerate::cost {
namespace {

constexpr int kMostBends = 24;            // in a row, between two joints
constexpr std::size_t kMostPieces = 256;  // between two joints: more are rounding, not bends

// The straight line through (a, at_a) and (to, at_to), as the piece from `from` to `to`.
AffinePiece through(double from, double to, double a, double at_a, double at_to) {
  const double beta = to > a ? (at_to - at_a) / (to - a) : 0;
  return {from, to, at_to - beta * to, beta};
}

AffinePiece tangent(const CostCurve& curve, double a, double b) {
  return through(a, b, a, curve.seconds(a), curve.seconds(b));
}

// Whether the curve lies on the line at an eighth, a half and seven eighths of the way. A bend
// lifts or lowers everything between the ends, so three sizes are enough.
bool is_straight(const CostCurve& curve, const AffinePiece& p) {
  for (const double part : {0.125, 0.5, 0.875}) {
    const double bytes = p.from_bytes + part * (p.to_bytes - p.from_bytes);
    const double seconds = curve.seconds(bytes);
    if (std::abs(p.seconds(bytes) - seconds) > 1e-12 * std::abs(seconds)) return false;
  }
  return true;
}

// Cuts what lies between two joints and appends its pieces. `bends` counts the cuts on the way to
// this part. Rounding may make a straight part look bent, so the number of cuts in a row has a
// limit. The number of pieces has one too: with `most` of them the rest of the stretch is one.
void split(const CostCurve& curve, double from, double to, std::size_t most,
           std::vector<AffinePiece>& pieces, int bends = 0) {
  // Just past `from`, where a piece of its own may end.
  const double near = (to - from) / (1 << 20), begin = from + near;
  const double at_begin = curve.seconds(begin), at_to = curve.seconds(to);
  const AffinePiece whole = through(from, to, begin, at_begin, at_to);
  const bool is_speck = to - from < 1e-9 * to;  // no two sizes apart
  if (bends == kMostBends || pieces.size() >= most || is_speck || is_straight(curve, whole)) {
    pieces.push_back(whole);
    return;
  }
  // A thousandth of it: what is rounded of shorter ones moves the bend.
  const double base = (to - from) / (1 << 10);
  const AffinePiece left = tangent(curve, begin, begin + base),
                    right = tangent(curve, to - base, to);
  double bend = (right.alpha_s - left.alpha_s) / (left.beta_s_per_byte - right.beta_s_per_byte);
  if (!(bend > begin && bend < to)) bend = from + (to - from) / 2;
  split(curve, from, bend, most, pieces, bends + 1);
  split(curve, bend, to, most, pieces, bends + 1);
}

// Evaluates the cost of a collective at any size. Closed forms are lines. Measured tables answer
// for their own rank count; FittedPart moves them to the one that is asked for.
//
// Between two measured counts each part lies on a straight line of its own law. An example:
// all-reduces were measured on 2 and on 8 ranks, and 4 are asked for.
// - A ring takes 2, 14 and 6 message steps on 2, 8 and 4 ranks. The start-up is (6 - 2) / (14 - 2)
//   = 1/3 of the way. With start-ups of 40 and 160 us it is 80 us.
// - Bytes per link are 1, 1.75 and 1.5 times the array. The bulk is (1.5 - 1) / .75 = 2/3 of the
//   way. With bulks of 10 and 16 ms it is 14 ms.
//
// Outside the measured counts one table is multiplied by its law's factors (law_of).

double mix(double a, double b, double weight) { return (1 - weight) * a + weight * b; }

// What bounds do to seconds they do to both ends of an estimate.
double sum(double a, double b) { return a + b; }
double larger(double a, double b) { return std::max(a, b); }
double smaller(double a, double b) { return std::min(a, b); }
Estimate each(const Estimate& a, const Estimate& b, double (*change)(double, double)) {
  return {change(a.seconds, b.seconds), change(a.low, b.low), change(a.high, b.high), false};
}
Estimate sum(const Estimate& a, const Estimate& b) { return each(a, b, sum); }
Estimate smaller(const Estimate& a, const Estimate& b) { return each(a, b, smaller); }

/// Applies the bounds that hold between costs to `all`, seconds or an estimate. `of` evaluates
/// another curve, and `known` makes the same type of an estimate. Lower bounds come first. An
/// all-reduce then takes no longer than its two halves, and a half no longer than its all-reduce.
/// Above the size of another schedule it takes at least a half's time there.
template <typename T, typename Of, typename Known>
T bounded(const CostCurve& c, double bytes, T all, const Of& of, const Known& known) {
  const double floor = std::max(c.least_s, c.floor_s_per_byte * bytes);
  all = larger(all, known({floor, floor, floor, false}));
  if (c.one_node) all = larger(all, of(*c.one_node));
  const bool is_made = (c.halves || c.whole) && c.is_made_of_halves(bytes);
  if (c.halves) {
    const T both = sum(of((*c.halves)[0]), of((*c.halves)[1]));
    all = c.is_sum_of_halves ? both : smaller(all, both);
  }
  if (c.whole && is_made) all = smaller(all, of(*c.whole));
  return is_made ? larger(all, known(c.least_above)) : all;
}

/// How far `n` is on the way from one rank count to another, from 0 to 1, by a law that grows with
/// the ranks. If the law is flat, the answer is `otherwise`.
double weight_of(double from, double n, double to, double otherwise) {
  return to > from ? (n - from) / (to - from) : otherwise;
}

}  // namespace

std::vector<AffinePiece> affine_pieces(const CostCurve& curve, double most) {
  std::vector<AffinePiece> pieces;
  double from = 0;
  for (const double joint : curve.joints()) {
    if (joint <= from || joint >= most) continue;
    split(curve, from, joint, pieces.size() + kMostPieces, pieces);
    from = joint;
  }
  split(curve, from, std::max(most, from + 1), pieces.size() + kMostPieces, pieces);
  return pieces;
}

Estimate larger(const Estimate& a, const Estimate& b) { return each(a, b, larger); }

// A table of another collective stands in for the one that is asked for, at its own rank count. An
// all-gather of a table of all-reduces has half the message steps and half the bytes per link.
Anchor::Anchor(const TableLaw& table, Collective asked) : law(&table) {
  const doc::CollectiveCost& cost = table.table();
  if (cost.collective == asked) return;
  start_factor = message_steps(asked, cost.ranks) / message_steps(cost.collective, cost.ranks);
  bulk_factor = bus_factor(asked, cost.ranks) / bus_factor(cost.collective, cost.ranks);
}

// `on_the_way_` has the law at 2, 4, 8 ... times the measured ranks, and the last one is past the
// asked count. On fewer ranks it has those at 1/2, 1/4 ... of them. from_one() keeps its interval
// monotone with these.
FittedPart::FittedPart(std::vector<Anchor> anchors, Collective collective, int ranks)
    : anchors_(std::move(anchors)), collective_(collective), ranks_(ranks) {
  const int first = anchors_.front().ranks();
  const TableLaw& nearest = *anchors_.front().law;
  law_ = nearest.law_to(collective, ranks);
  between_ = anchors_.size() > 1 && first < ranks;
  if (between_) {
    const int second = anchors_[1].ranks();
    weight_log_ = weight_of(std::log2(first), std::log2(ranks), std::log2(second), 0);
    const double steps = nearest.law_to(collective, second).start;
    weight_ = {weight_of(1, law_.start, steps, weight_log_),
               weight_of(bus_factor(collective, first), bus_factor(collective, ranks),
                         bus_factor(collective, second), weight_log_)};
  }
  const std::int64_t from = first, to = ranks;
  if (!between_ && to > from)
    for (std::int64_t n = 2 * from; n < 2 * to; n *= 2)
      on_the_way_.push_back(nearest.law_to(collective, static_cast<int>(n)));
  else if (!between_ && to > 1)
    for (std::int64_t n = from / 2; n > 0 && 2 * n + 1 > to && to < from; n /= 2)
      on_the_way_.push_back(nearest.law_to(collective, static_cast<int>(n)));
  find_floors();
}

void FittedPart::set_move(const FittedMove& move) {
  move_ = move;
  find_floors();
}

// Keeps the seconds from falling with the size. At some sizes a table's start-up rises and its bulk
// falls, because another algorithm begins there. A move to another bandwidth scales the bulk alone,
// so the sum may then fall although both parts grow elsewhere. An example: up to 1 MiB a start-up
// of .1 ms and a bulk of 1 ms, from there on .6 and .6 ms. At half the bandwidth they are .1 + 2 =
// 2.1 ms before and .6 + 1.2 = 1.8 ms after. The floor of 2.1 ms holds from there on.
void FittedPart::find_floors() {
  floors_.clear();
  std::vector<double> sizes;
  for (const Anchor& anchor : anchors_)
    sizes.insert(sizes.end(), anchor.law->falls().begin(), anchor.law->falls().end());
  std::sort(sizes.begin(), sizes.end());
  double floor = 0;
  for (const double bytes : sizes) {
    floor = std::max(floor, moved(split(bytes), bytes).seconds());
    floors_.push_back({bytes, floor});
  }
}

double FittedPart::floor_at(double bytes) const {
  double floor = 0;
  for (const Floor& f : floors_) {
    if (f.after_bytes >= bytes) break;
    floor = f.seconds;
  }
  return floor;
}

/// The anchor's own measurement at this size. If a larger count took less time, the anchor gives
/// way. If 8 ranks took 12 ms and 16 ranks 11 ms, 8 ranks count as 11 ms. Disturbances make times
/// longer, never shorter.
FittedSplit FittedPart::own(std::size_t anchor, double bytes) const {
  FittedSplit all = anchors_[anchor].at(bytes);
  for (std::size_t k = anchor + 1; k < anchors_.size(); ++k) {
    const double most = anchors_[k].at(bytes).seconds();
    if (all.seconds() <= most) continue;
    all.start = std::min(all.start, most);
    all.bulk = most - all.start;
  }
  return all;
}

FittedSplit FittedPart::split(double bytes) const {
  const FittedSplit first = own(0, bytes);
  if (!between_) return first.by(law_, bytes);
  // Neither part falls: what one measurement calls start-up the other may call bulk.
  const FittedSplit second = own(1, bytes);
  const double all = second.seconds();
  const double start =
      std::clamp(second.start, first.start, std::max(first.start, all - first.bulk));
  return {mix(first.start, start, weight_.start), mix(first.bulk, all - start, weight_.bulk)};
}

// T' = alpha + added + max(least, beta * factor) * S: latency does not scale with bandwidth. A
// lower latency cannot save more than the measured start-up.
FittedSplit FittedPart::moved(const FittedSplit& split, double bytes) const {
  if (!move_.moved) return split;
  return {std::max(0.0, split.start + move_.added_s),
          std::max(split.bulk * move_.bulk_factor, move_.least_beta_s_per_byte * bytes)};
}

double FittedPart::seconds(double bytes) const {
  return std::max(moved(split(bytes), bytes).seconds(), floor_at(bytes));
}

// One table answers for another rank count. It is not known which of ring and tree a library picks
// there. The ring is the answer. The interval spans both, and 10 % more per doubling of the ranks.
//
// Costs grow with the ranks, and the ends of the interval have to do so as well. On more ranks than
// measured the low end must not fall; on fewer ranks the high end must not rise. The formula of an
// end may turn, because the interval widens while the law grows slowly. So the end is followed from
// the measured count in doublings. Between the last two doublings it is clamped to what they gave.
// An example: 8 ranks were measured, and the low end is 9.0 ms there, 9.4 ms on 16 and 9.2 ms on 32
// ranks. On 32 ranks and on 24 it counts as 9.4 ms.
Estimate FittedPart::from_one(double bytes) const {
  const FittedSplit here = own(0, bytes);
  const TableLaw::Interval at = law().interval_at(bytes);
  const auto seconds = [&](const RankLaw& there, double start_factor) {
    return moved(here.by(there, bytes, start_factor), bytes).seconds();
  };
  const auto low_on = [&](const RankLaw& there) {
    return at.low / there.interval * seconds(there, there.start_least);
  };
  const auto high_on = [&](const RankLaw& there) {
    return at.high * there.interval * seconds(there, there.start_most);
  };
  Estimate e{
      seconds(law_, law_.start), low_on(law_), high_on(law_),
      at.extrapolated || law_.moved || move_.moved || law().table().collective != collective_};
  if (on_the_way_.empty()) return e;
  const bool is_more = ranks_ > law().table().ranks;
  double before = is_more ? low_on({}) : high_on({}), next = before;
  for (const RankLaw& there : on_the_way_) {
    before = next;
    next = is_more ? std::max(before, low_on(there)) : std::min(before, high_on(there));
  }
  if (is_more)
    e.low = std::max(before, std::min(e.low, next));
  else
    e.high = std::min(before, std::max(e.high, next));
  return e;
}

// Two tables answer for a rank count between theirs. At a measured count the interval is the
// table's. Half way, counted in doublings, it also holds what the law makes of either table alone.
// `middle` is how far this matters: 0 at the tables and 1 half way.
Estimate FittedPart::from_two(double bytes) const {
  const TableLaw::Interval a = anchors_[0].law->interval_at(bytes);
  const TableLaw::Interval b = anchors_[1].law->interval_at(bytes);
  const FittedSplit here = split(bytes);
  const RankLaw back = anchors_[1].law->law_to(collective_, ranks_);
  const double up = own(0, bytes).by(law_, bytes).seconds();
  const double down = own(1, bytes).by(back, bytes).seconds();
  const double all = here.seconds(), w = weight_log_, middle = 4 * w * (1 - w);
  const double least = all > 0 ? std::min(1.0, std::min(up, down) / all) : 1;
  const double most = all > 0 ? std::max(1.0, std::max(up, down) / all) : 1;
  const double seconds = moved(here, bytes).seconds();
  return {seconds, mix(a.low, b.low, w) * mix(1, least, middle) * seconds,
          mix(a.high, b.high, w) * mix(1, most, middle) * seconds, true};
}

Estimate FittedPart::estimate(double bytes) const {
  Estimate e = between_ ? from_two(bytes) : from_one(bytes);
  if (const double floor = floor_at(bytes); e.seconds < floor) {
    const double factor = e.seconds > 0 ? floor / e.seconds : 1;
    e.low *= factor, e.high = std::max(floor, e.high * factor), e.seconds = floor;
  }
  e.low = std::min(e.low, e.seconds), e.high = std::max(e.high, e.seconds);
  return e;
}

void FittedPart::add_joints(std::vector<double>& sizes) const {
  for (const Anchor& anchor : anchors_)
    for (const double end : anchor.law->ends()) sizes.push_back(end);
}

double CostCurve::fitted_seconds(double bytes) const {
  return bounded(
      *this, bytes, fitted.seconds(bytes) + line(bytes),
      [bytes](const CostCurve& other) { return other.seconds(bytes); },
      [](const Estimate& e) { return e.seconds; });
}

Estimate CostCurve::estimate(double bytes) const {
  if (!fitted) {
    const double t = seconds(bytes);
    if (!ends) return {t, t, t, false};
    return {t, std::min(t, (*ends)[0](bytes)), std::max(t, (*ends)[1](bytes)), false};
  }
  const Estimate own = fitted.estimate(bytes);
  const double added = line(bytes);
  Estimate all = bounded(
      *this, bytes, sum(own, {added, added, added, false}),
      [bytes](const CostCurve& other) { return other.estimate(bytes); },
      [](const Estimate& e) { return e; });
  all.extrapolated = own.extrapolated || is_sum_of_halves;
  return all;
}

std::vector<double> CostCurve::joints() const {
  std::vector<double> sizes;
  fitted.add_joints(sizes);
  const auto add_all = [&](const CostCurve& other) {
    const std::vector<double> more = other.joints();
    sizes.insert(sizes.end(), more.begin(), more.end());
  };
  if (one_node) add_all(*one_node);
  if (whole) add_all(*whole);
  if (halves)
    for (const CostCurve& half : *halves) add_all(half);
  if ((halves || whole) && made_of_halves_above > 0 && std::isfinite(made_of_halves_above))
    sizes.push_back(made_of_halves_above);
  if (!fitted && add)
    for (const AddTable::Piece& piece : add->pieces())
      if (std::isfinite(piece.to_bytes)) sizes.push_back(piece.to_bytes / add_share);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

// A tree is shorter up to the size at which the latency that it saves equals the bandwidth that it
// loses. `*trees` are lines, as is the ring, so each crosses the ring once.
double CostCurve::tree_up_to() const {
  double size = 0;
  if (!trees) return size;
  for (const Line& tree : *trees) {
    const double saved = line.alpha_s - tree.alpha_s;  // at no bytes
    const double lost = tree.beta_s_per_byte - line.beta_s_per_byte;
    if (saved > 0) size = std::max(size, lost > 0 ? saved / lost : INFINITY);
  }
  return size;
}

}  // namespace linerate::cost
