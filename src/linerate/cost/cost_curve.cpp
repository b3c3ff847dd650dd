#include "linerate/cost/cost_curve.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace linerate::cost {
namespace {

double mix(double a, double b, double weight) { return (1 - weight) * a + weight * b; }

Estimate sum(const Estimate& a, const Estimate& b) {
  return {a.seconds + b.seconds, a.low + b.low, a.high + b.high, a.extrapolated || b.extrapolated};
}

/// The same of seconds and of both ends.
template <typename Change>
Estimate each(const Estimate& a, const Estimate& b, const Change& change) {
  return {change(a.seconds, b.seconds), change(a.low, b.low), change(a.high, b.high),
          a.extrapolated || b.extrapolated};
}

/// Where `n` lies between two rank counts, by a law that grows with them; `otherwise` if it is
/// flat.
double weight_of(double from, double n, double to, double otherwise) {
  return to > from ? (n - from) / (to - from) : otherwise;
}

}  // namespace

Anchor::Anchor(const TableLaw& table, Collective asked) : law(&table) {
  const doc::CollectiveCost& cost = table.table();
  if (cost.collective == asked) return;
  start_factor = message_steps(asked, cost.ranks) / message_steps(cost.collective, cost.ranks);
  bulk_factor = bus_factor(asked, cost.ranks) / bus_factor(cost.collective, cost.ranks);
}

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

void FittedPart::set_share(double share) {
  share_ = share;
  find_floors();
}

void FittedPart::find_floors() {
  floors_.clear();
  std::vector<double> sizes;
  for (const Anchor& anchor : anchors_)
    sizes.insert(sizes.end(), anchor.law->falls().begin(), anchor.law->falls().end());
  std::sort(sizes.begin(), sizes.end());
  double floor = 0;
  for (const double bytes : sizes) {
    floor = std::max(floor, moved(split(bytes), bytes).seconds());
    floors_.push_back({bytes / share_, floor});
  }
}

double FittedPart::floor_at(double asked) const {
  double floor = 0;
  for (const Floor& f : floors_) {
    if (f.after_bytes >= asked) break;
    floor = f.seconds;
  }
  return floor;
}

/// What an anchor measured, or what a larger one did if that took less time.
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
  if (!between_) return first.times(law_.start, law_.bulk);
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

double FittedPart::seconds(double asked) const {
  const double bytes = asked * share_;
  return std::max(moved(split(bytes), bytes).seconds(), floor_at(asked));
}

// Which of ring and tree a library picks at another rank count is unknown: the ring is the answer,
// the interval spans both and 10 % more per doubling of the ranks. As costs grow with the ranks, so
// do both ends: away from the measured count the low one never falls, and the high one never rises
// on fewer ranks. What the ends would be is looked at in doublings, as it turns at most once.
Estimate FittedPart::from_one(double bytes) const {
  const FittedSplit here = own(0, bytes);
  const TableLaw::Interval at = law().interval_at(bytes);
  const auto seconds = [&](double start_factor, double bulk_factor) {
    return moved(here.times(start_factor, bulk_factor), bytes).seconds();
  };
  const auto low_on = [&](const RankLaw& there) {
    return at.low / there.interval * seconds(there.start_least, there.bulk);
  };
  const auto high_on = [&](const RankLaw& there) {
    return at.high * there.interval * seconds(there.start_most, there.bulk);
  };
  Estimate e{
      seconds(law_.start, law_.bulk), low_on(law_), high_on(law_),
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

// Half way (in doublings) the interval holds what the law makes of either count.
Estimate FittedPart::from_two(double bytes) const {
  const TableLaw::Interval a = anchors_[0].law->interval_at(bytes);
  const TableLaw::Interval b = anchors_[1].law->interval_at(bytes);
  const FittedSplit here = split(bytes);
  const RankLaw back = anchors_[1].law->law_to(collective_, ranks_);
  const double up = own(0, bytes).times(law_.start, law_.bulk).seconds();
  const double down = own(1, bytes).times(back.start, back.bulk).seconds();
  const double all = here.seconds(), w = weight_log_, middle = 4 * w * (1 - w);
  const double least = all > 0 ? std::min(1.0, std::min(up, down) / all) : 1;
  const double most = all > 0 ? std::max(1.0, std::max(up, down) / all) : 1;
  const double seconds = moved(here, bytes).seconds();
  return {seconds, mix(a.low, b.low, w) * mix(1, least, middle) * seconds,
          mix(a.high, b.high, w) * mix(1, most, middle) * seconds, true};
}

Estimate FittedPart::estimate(double asked) const {
  const double bytes = asked * share_;
  Estimate e = between_ ? from_two(bytes) : from_one(bytes);
  if (const double floor = floor_at(asked); e.seconds < floor) {
    const double factor = e.seconds > 0 ? floor / e.seconds : 1;
    e.low *= factor, e.high = std::max(floor, e.high * factor), e.seconds = floor;
  }
  e.low = std::min(e.low, e.seconds), e.high = std::max(e.high, e.seconds);
  return e;
}

void FittedPart::add_joints(std::vector<double>& sizes) const {
  for (const Anchor& anchor : anchors_)
    for (const double end : anchor.law->ends()) sizes.push_back(end / share_);
}

double CostCurve::fitted_seconds(double bytes) const {
  double all = fitted.seconds(bytes) + line(bytes);
  if (between) all += between.seconds(bytes);
  all = std::max({all, least_s, floor_s_per_byte * bytes});
  if (one_node) all = std::max(all, one_node->seconds(bytes) + beyond_node_s);
  const bool is_made = (halves || whole) && is_made_of_halves(bytes);
  if (halves) {
    const double both = (*halves)[0].seconds(bytes) + (*halves)[1].seconds(bytes);
    all = is_sum_of_halves ? both : std::min(all, both);
  }
  if (whole && is_made) all = std::min(all, whole->seconds(bytes));
  return is_made ? std::max(all, least_above.seconds) : all;
}

Estimate CostCurve::estimate(double bytes) const {
  if (!fitted) {
    const double t = seconds(bytes);
    if (!ends) return {t, t, t, false};
    return {t, std::min(t, (*ends)[0](bytes)), std::max(t, (*ends)[1](bytes)), false};
  }
  const auto larger = [](double a, double b) { return std::max(a, b); };
  const auto smaller = [](double a, double b) { return std::min(a, b); };
  const double added = line(bytes);
  Estimate all = sum(fitted.estimate(bytes), {added, added, added, has_links});
  if (between) all = sum(all, between.estimate(bytes));
  const double floor = std::max(least_s, floor_s_per_byte * bytes);
  all = each(all, {floor, floor, floor, false}, larger);
  if (one_node) {
    const Estimate least = one_node->estimate(bytes);
    const double more = beyond_node_s;
    all = each(all, {least.seconds + more, least.low + more, least.high + more, false}, larger);
  }
  const bool marked = all.extrapolated;
  const bool is_made = (halves || whole) && is_made_of_halves(bytes);
  if (halves) {
    const Estimate both = sum((*halves)[0].estimate(bytes), (*halves)[1].estimate(bytes));
    all = is_sum_of_halves ? both : each(all, both, smaller);
  }
  if (whole && is_made) all = each(all, whole->estimate(bytes), smaller);
  if (is_made) all = each(all, least_above, larger);
  all.extrapolated = marked || is_sum_of_halves;
  return all;
}

std::vector<double> CostCurve::joints() const {
  std::vector<double> sizes;
  for (const FittedPart* part : {&fitted, &between})
    if (*part) part->add_joints(sizes);
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
