// From a measured table to a law. The constructor works in four steps: 1. draw_measured(): the
// table's segments within its measured sizes become points whose seconds
//    ascend; disturbed sizes are pooled (make_ascending).
// 2. split_by_regime(): in each regime the seconds are taken apart into start-up and bulk. 3.
// add_below(): points below the smallest measured size. 4. settle(): points become straight pieces,
// which at() searches.
#include "linerate/cost/fitted.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "linerate/core/error.hpp"

namespace linerate::cost {
namespace {

// Stated, not measured: ring, tree and channel count change with the ranks in ways one table cannot
// show.
constexpr double kLawErrorPerDoubling = 0.10;
constexpr double kPairOfNodes = 1.3;  // besides, to or from two nodes, where a tree is one pair
constexpr double kJump = 1.10;        // more between two touching segments is another regime

double seconds_of(const doc::CostSegment& segment, double bytes) {
  return std::max(0.0, segment.alpha_s + segment.beta_s_per_byte * bytes);
}

/// How many doublings `bytes` is outside the measured sizes; 0 inside.
double doublings_outside(const MeasuredSizes& range, double bytes) {
  if (bytes > range.to && range.to > 0) return std::log2(bytes / range.to);
  if (bytes < range.from) return std::log2(range.from / std::max(bytes, 1.0));
  return 0;
}

bool is_tree(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::barrier;
}

/// Makes the values ascend with the least sum of absolute changes. Neighbours in the wrong order
/// are pooled into a block, which takes their (lower) median, until no block exceeds the next. A
/// value that is off moves nothing but itself. Source: Robertson & Waltman 1968, isotonic medians.
///
/// An example: 5, 9, 6, 7, 12. 9 exceeds 6, so the two become a block with the median 6. 7 and 12
/// ascend from there. The result is 5, 6, 6, 7, 12: only the 9 was moved.
void make_ascending(std::vector<double>& values) {
  struct Block {
    std::size_t begin, end;
    double median;
  };
  std::vector<Block> blocks;
  std::vector<double> members;
  for (std::size_t i = 0; i < values.size(); ++i) {
    blocks.push_back({i, i + 1, values[i]});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].median > blocks.back().median) {
      const std::size_t end = blocks.back().end;
      blocks.pop_back();
      Block& block = blocks.back();
      block.end = end;
      members.assign(values.begin() + static_cast<std::ptrdiff_t>(block.begin),
                     values.begin() + static_cast<std::ptrdiff_t>(end));
      const auto middle = members.begin() + static_cast<std::ptrdiff_t>((members.size() - 1) / 2);
      std::nth_element(members.begin(), middle, members.end());
      block.median = *middle;
    }
  }
  for (const Block& block : blocks)
    std::fill(values.begin() + static_cast<std::ptrdiff_t>(block.begin),
              values.begin() + static_cast<std::ptrdiff_t>(block.end), block.median);
}

}  // namespace

double tolerance_at(double bytes) { return bytes >= 1 << 20 ? 1.1 : 2; }

double message_steps(Collective collective, int ranks) {
  const double others = std::max(0, ranks - 1);
  if (is_tree(collective)) return std::ceil(std::log2(std::max(1, ranks)));
  return collective == Collective::all_reduce ? 2 * others : others;
}

// How costs change with the rank count. An example: an all-reduce from 4 to 16 ranks. A ring has 15
// / 3 = 5 times the message steps, and a tree has 4 / 2 = 2 times. Bytes per link change from 2 *
// 3/4 to 2 * 15/16 of the array, by 1.25. Two doublings widen the interval by 1.2 on either side.
//
// Where nodes exchange in trees or rail by rail, nodes count instead of ranks. From 2 to 8 nodes
// the start-up grows by (1 + 3) / (1 + 1) = 2 and the bulk by 1.75.
RankLaw law_of(Collective collective, int from, int to, int ranks_per_node) {
  RankLaw law;
  if (to == from) return law;
  law.moved = true;
  if (to <= 1 || from <= 1) {
    law.start = law.start_least = law.start_most = law.bulk = 0;
    return law;
  }
  const double tree = std::log2(to) / std::log2(from);
  const double ring = static_cast<double>(to - 1) / static_cast<double>(from - 1);
  law.start = is_tree(collective) ? tree : ring;
  law.start_least = std::min(law.start, tree);
  law.start_most = std::max(law.start, tree);
  law.bulk = bus_factor(collective, to) / bus_factor(collective, from);
  law.interval = 1 + kLawErrorPerDoubling * std::abs(std::log2(to) - std::log2(from));
  if (ranks_per_node <= 1 || is_tree(collective)) return law;
  const int nodes = nodes_for(from, ranks_per_node), others = nodes_for(to, ranks_per_node);
  if (nodes <= 1 || others <= 1) return law;
  law.start = (1 + std::log2(others)) / (1 + std::log2(nodes));
  law.start_least = std::min(law.start_least, law.start);
  law.start_most = std::max(law.start_most, law.start);
  law.bulk = bus_factor(collective, others) / bus_factor(collective, nodes);
  if (nodes == 2 || others == 2) law.interval *= kPairOfNodes;
  return law;
}

int by_node_of(const doc::CollectiveCost& cost, int ranks_per_node) {
  constexpr double kFastestRing = 63e9;  // bytes/s
  const int per_node = cost.ranks_per_node > 0 ? cost.ranks_per_node : ranks_per_node;
  if (per_node <= 1 || cost.ranks <= per_node || cost.samples.empty()) return 1;
  const doc::CostSample& last = cost.samples.back();
  const double rate = last.bytes * bus_factor(cost.collective, cost.ranks) / last.seconds;
  return rate > kFastestRing ? per_node : 1;
}

TableLaw::TableLaw(const doc::CollectiveCost& table, int ranks_per_node) : table_(&table) {
  by_node_of_ = cost::by_node_of(table, ranks_per_node);
  LINERATE_CHECK(!table.segments.empty(), fmt::format("{} on {} ranks has no segments",
                                                      name_of(table.collective), table.ranks));
  sizes_ = {static_cast<double>(table.segments.front().from_bytes),
            static_cast<double>(table.segments.back().to_bytes)};
  if (!table.samples.empty()) sizes_ = {table.samples.front().bytes, table.samples.back().bytes};
  const doc::CostSegment& last = table.segments.back();
  end_s_per_byte_ = std::max(0.0, last.beta_s_per_byte);
  end_low_ = last.low, end_high_ = last.high;
  draw_measured();
  split_by_regime();
  add_below();
  settle();
}

// A broadcast on fewer ranks than measured has fewer levels. Small arrays pass one level after the
// other, so their bulk shrinks with the levels. Large arrays are cut and pass all levels at once,
// so they take one pass of the array on any number of ranks. The table's last slope is that of a
// pass.
//
// An example: on 4 ranks, two levels, 100 KB take 2 ms and the last slope is 8 ns/B. On 2 ranks
// they take half, 1 ms, because a pass takes .8. 1 MB that took 8.5 ms takes its pass, 8 ms.
RankLaw TableLaw::law_to(Collective collective, int ranks) const {
  RankLaw law = law_of(collective, table_->ranks, ranks, by_node_of_);
  if (is_tree(collective) && table_->collective == collective && 1 < ranks &&
      ranks < table_->ranks) {
    law.bulk = law.start;
    law.pass_s_per_byte = end_s_per_byte_;
  }
  return law;
}

/// Draws the segments within the measured sizes, as totals that ascend. Touching segments share a
/// point if they agree there; otherwise the size has two points, and the curve jumps.
void TableLaw::draw_measured() {
  std::vector<double> seconds;
  const auto add = [&](double bytes, double value, const doc::CostSegment& segment) {
    const bool same = !nodes_.empty() && nodes_.back().bytes == bytes &&
                      std::abs(seconds.back() - value) <= 1e-9 * value;
    if (same) return;
    nodes_.push_back({bytes, {}, segment.low, segment.high, table_, true});
    seconds.push_back(value);
  };
  double from = sizes_.from;
  for (const doc::CostSegment& segment : table_->segments) {
    const bool is_last = &segment == &table_->segments.back();
    const double to =
        is_last ? sizes_.to : std::min(sizes_.to, static_cast<double>(segment.to_bytes));
    if (to < from || (to == from && !(is_last && nodes_.empty()))) continue;
    add(from, seconds_of(segment, from), segment);
    add(to, seconds_of(segment, to), segment);
    from = to;
  }
  make_ascending(seconds);
  for (std::size_t i = 0; i < nodes_.size(); ++i) nodes_[i].split.bulk = seconds[i];
}

/// Takes the seconds apart. The start-up of a regime is what its line from end to end leaves at no
/// bytes. An example: from 1 MiB to 4 MiB the time grows from .5 to 1.4 ms. That is .3 ms a MiB, so
/// the start-up is .2 ms. At 4 MiB 1.2 ms are bulk, which bandwidth and compression scale.
///
/// A regime ends at a jump or within a switch of the table. Its line goes on up to the first size
/// that was measured in the next regime. A later regime starts no quicker than an earlier one;
/// otherwise a library would use it for small messages too.
void TableLaw::split_by_regime() {
  const auto total = [&](std::size_t i) { return nodes_[i].split.bulk; };
  auto next = table_->switches.begin();
  // The start-up that the table states counts for a single size too, which has no line of its own.
  double start = std::clamp(table_->segments.front().alpha_s, 0.0, total(0));
  std::vector<double> starts(nodes_.size());
  for (std::size_t begin = 0; begin < nodes_.size();) {
    std::size_t end = begin + 1;
    std::size_t last = begin;  // that is not within the next switch
    while (next != table_->switches.end() &&
           static_cast<double>(next->before_bytes) <= nodes_[begin].bytes)
      ++next;
    for (; end < nodes_.size(); ++end) {
      const double bytes = nodes_[end].bytes;
      const bool jumps = nodes_[end - 1].bytes == bytes && total(end) > kJump * total(end - 1);
      const bool is_next = next != table_->switches.end();
      if (jumps || (is_next && bytes >= static_cast<double>(next->before_bytes))) break;
      if (!is_next || bytes <= static_cast<double>(next->after_bytes)) last = end;
    }
    if (const double width = nodes_[last].bytes - nodes_[begin].bytes; width > 0) {
      const double slope = (total(last) - total(begin)) / width;
      start = std::max(start, total(begin) - slope * nodes_[begin].bytes);
    }
    std::fill(starts.begin() + static_cast<std::ptrdiff_t>(begin),
              starts.begin() + static_cast<std::ptrdiff_t>(end), start);
    regimes_.push_back(begin == 0 ? 0 : nodes_[begin].bytes);
    begin = end;
  }
  std::vector<Node> all;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node node = nodes_[i];
    if (i > 0 && starts[i] > starts[i - 1] && nodes_[i - 1].bytes < node.bytes) {
      all.push_back(node);  // the regime before ends here
      all.back().split = {starts[i - 1], total(i) - starts[i - 1]};
    }
    node.split = {starts[i], total(i) - starts[i]};
    all.push_back(node);
  }
  nodes_ = std::move(all);
}

/// Draws the curve below the smallest measured size. Half the bytes never take less than half the
/// time, down to an eighth of the smallest size. An example: the smallest size, 1 MiB, takes .8 ms
/// with a start-up of .04 ms. The line to the start-up would reach .1 ms, an eighth, at .08 MiB.
/// From there down to no bytes the curve stays at .1 ms.
void TableLaw::add_below() {
  const Node first = nodes_.front();
  if (!(first.bytes > 0)) return;
  const double start = first.split.start, all = first.split.seconds();
  const double least = std::max(start, all / kReach);
  const doc::CostSegment& segment = table_->segments.front();
  const auto node = [&](double bytes) {
    return Node{bytes, {start, least - start}, segment.low, segment.high, table_, true};
  };
  std::vector<Node> below{node(0)};
  if (least > start) below.push_back(node(first.bytes * (least - start) / (all - start)));
  nodes_.front().low = segment.low, nodes_.front().high = segment.high;
  nodes_.insert(nodes_.begin(), below.begin(), below.end());
}

// Makes the pieces from the points. A piece ends at its last size, so that a size at which the
// curve jumps belongs to the piece before the jump. `falls_` has the jumps at which a part falls.
void TableLaw::settle() {
  pieces_.clear(), falls_.clear();
  // No bytes are a piece of their own.
  pieces_.push_back({nodes_.front().bytes, nodes_.front().bytes, nodes_.front().split, 0});
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    const Node &a = nodes_[i - 1], &b = nodes_[i];
    const double width = b.bytes - a.bytes;
    if (width > 0)
      pieces_.push_back({b.bytes, a.bytes, a.split, (b.split.bulk - a.split.bulk) / width});
    else if (b.split.start < a.split.start || b.split.bulk < a.split.bulk)
      falls_.push_back(a.bytes);
  }
  pieces_.push_back({std::numeric_limits<double>::infinity(), nodes_.back().bytes,
                     nodes_.back().split, end_s_per_byte_});
}

std::size_t TableLaw::index_of(double bytes) const {
  // std::lower_bound without its branches: which piece comes out is hard to foresee.
  const Piece* found = pieces_.data();
  for (std::size_t left = pieces_.size(); left > 1; left -= left / 2)
    found += found[left / 2 - 1].to < bytes ? static_cast<std::ptrdiff_t>(left / 2) : 0;
  return static_cast<std::size_t>(found - pieces_.data());
}

FittedSplit TableLaw::at(double bytes) const {
  const Piece& piece = pieces_[index_of(bytes)];
  return {piece.at_from.start, piece.at_from.bulk + piece.bulk_s_per_byte * (bytes - piece.from)};
}

// The interval of the stretch that holds this size. Outside the measured sizes it widens by its own
// width with each doubling: from 1.1 at the largest size to 1.2 at twice that size.
TableLaw::Interval TableLaw::interval_at(double bytes) const {
  const auto node = std::ranges::lower_bound(nodes_, bytes, {}, &Node::bytes);
  const bool beyond = node == nodes_.end();
  const double low = beyond ? end_low_ : node->low, high = beyond ? end_high_ : node->high;
  const double distance = doublings_outside(sizes_, bytes);
  // Below, the excess of 1 / low grows as that of high does above: a time never reaches 0.
  return {low / (low + (1 - low) * (1 + distance)), 1 + (high - 1) * (1 + distance),
          distance > 0 || beyond || !node->measured};
}

const doc::CollectiveCost& TableLaw::source_at(double bytes) const {
  const auto node = std::ranges::lower_bound(nodes_, bytes, {}, &Node::bytes);
  return node == nodes_.end() ? *nodes_.back().source : *node->source;
}

std::vector<double> TableLaw::ends() const {
  std::vector<double> sizes;
  for (std::size_t i = 0; i + 1 < pieces_.size(); ++i) sizes.push_back(pieces_[i].to);
  return sizes;
}

// The factors lead from the table's collective at its own ranks to `collective` at `ranks`.
// law_to() gives those between rank counts, and the ratios of message steps and of bytes those
// between the collectives.
TableLaw TableLaw::moved_to(Collective collective, int ranks) const {
  TableLaw there = *this;
  const int here = table_->ranks;
  const RankLaw law = law_to(collective, ranks);
  const double start = message_steps(collective, here) / message_steps(table_->collective, here);
  const double bulk = bus_factor(collective, here) / bus_factor(table_->collective, here);
  for (Node& node : there.nodes_) {
    node.split = node.split.by(law, node.bytes).times(start, bulk);
    node.measured = false;
  }
  there.end_s_per_byte_ = bulk * std::max(law.bulk * end_s_per_byte_, law.pass_s_per_byte);
  there.settle();
  return there;
}

// Above its reach this table goes on with the other one's points, and below its reach as well. The
// curve must ascend across the join. So points above are raised to at least this table's last time,
// and points below are lowered to at most its first one. A straight line joins the two tables; it
// has the start-up of its beginning.
void TableLaw::go_on_with(const TableLaw& other) {
  const double above = sizes_.to * kReach, below = sizes_.from / kReach;
  // The line has the start-up of its beginning.
  const auto add_join = [](std::vector<Node>& all, const Node& to) {
    Node end = to;
    end.split.start = all.back().split.start;
    end.split.bulk = std::max(all.back().split.bulk, to.split.seconds() - end.split.start);
    end.measured = false;
    all.push_back(end);
    all.push_back(to);
  };
  const auto node_at = [&other](double bytes) {
    const Interval interval = other.interval_at(bytes);
    return Node{bytes,         other.at(bytes),         interval.low,
                interval.high, &other.source_at(bytes), false};
  };
  if (other.sizes_.to > above) {
    const double least = nodes_.back().split.seconds();
    const double begin = std::max(above, other.sizes_.from);
    const auto raised = [&](Node node) {
      node.split.bulk = std::max(node.split.bulk, least - node.split.start);
      return node;
    };
    add_join(nodes_, raised(node_at(begin)));
    for (const Node& node : other.nodes_)
      if (node.bytes >= begin) nodes_.push_back(raised(node));
    end_s_per_byte_ = other.end_s_per_byte_;
    end_low_ = other.end_low_, end_high_ = other.end_high_;
    sizes_.to = other.sizes_.to;
  }
  if (other.sizes_.from < below) {
    const auto own = std::find_if(nodes_.begin(), nodes_.end(),
                                  [&](const Node& n) { return n.bytes >= sizes_.from; });
    const double most = own->split.seconds();
    const double end = std::min(below, other.sizes_.to);
    const auto lowered = [&](Node node) {
      node.split.start = std::min(node.split.start, most);
      node.split.bulk = std::min(node.split.bulk, most - node.split.start);
      return node;
    };
    std::vector<Node> all;
    for (const Node& node : other.nodes_)
      if (node.bytes < end) all.push_back(lowered(node));
    all.push_back(lowered(node_at(end)));
    own->source = all.back().source, own->measured = false;
    add_join(all, *own);
    all.insert(all.end(), own + 1, nodes_.end());
    nodes_ = std::move(all);
    sizes_.from = other.sizes_.from;
  }
  settle();
}

Estimate evaluate(const doc::CollectiveCost& cost, double bytes) {
  const TableLaw law(cost);
  const double seconds = law.at(bytes).seconds();
  const TableLaw::Interval interval = law.interval_at(bytes);
  return {seconds, interval.low * seconds, interval.high * seconds, interval.extrapolated};
}

}  // namespace linerate::cost
