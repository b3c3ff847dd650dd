// Workloads with other times: all parts slower or faster, a larger model, a faster device. Each
// keeps the Workload's rules, above all that its parts fit into its step.
#include "linerate/doc/step_speed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/scaling_factor.hpp"
#include "linerate/doc/validate.hpp"

namespace linerate::doc {
namespace {

void times(std::optional<double>& s, double factor) {
  if (s) *s *= factor;
}

void check_factor(double factor) {
  constexpr double kMost = 1000;
  if (!(factor > 0 && factor <= kMost))
    throw UsageError(
        fmt::format("expected a factor above 0 and at most {}, found {:g}", kMost, factor));
}

/// Elements rounded to a multiple of the rows, so that a matrix keeps its rows. With fewer elements
/// than rows it becomes a vector.
std::int64_t whole_rows(std::int64_t elements, std::optional<std::int64_t>& rows) {
  if (!rows) return elements;
  if (elements < *rows) rows = 1;
  return (elements + *rows / 2) / *rows * *rows;
}

}  // namespace

// An example: T_1 is 100 ms, backward 50, forward 30 and update 5 ms. 15 ms are left, and they are
// tail. If forward were 60 ms, forward and update would need 65 ms of the 50 ms outside backward.
// Both shrink by 50/65, to 46.2 and 3.8 ms.
OneRankParts parts_of(const Workload& w) {
  OneRankParts parts;
  parts.backward_s =
      w.gradients.empty() ? w.backward_s : std::max(w.backward_s, w.gradients.back().ready_s);
  const double outside = std::max(0.0, w.one_rank_step_s() - parts.backward_s);
  const double known = w.forward_s.value_or(0) + w.update_s.value_or(0) + w.tail_s.value_or(0);
  const double shrink = known > outside ? outside / known : 1;
  const double rest = std::max(0.0, outside - known);
  parts.update_s = w.update_s.value_or(0) * shrink;
  parts.tail_s = w.tail_s.value_or(0) * shrink;
  if (w.forward_s) {
    parts.forward_s = *w.forward_s * shrink;
    parts.tail_s += rest;
  } else {
    parts.forward_s = rest;
  }
  return parts;
}

Workload with_times(Workload w, double factor) {
  each_device_time(w, [factor](double& s) { s *= factor; });
  for (Block& b : w.blocks) times(b.factor_a_s, factor), times(b.factor_g_s, factor);
  for (std::optional<double>* s : {&w.tail_s, &w.step_s, &w.step_low_s, &w.step_high_s})
    times(*s, factor);
  w.recorded.reset();  // of another step
  return w;
}

// Factors were timed in steps of several ranks, so their times stay.
Workload among_ranks(Workload w, double share) {
  if (!w.several_ranks) return w;
  std::vector<Block> blocks = w.blocks;
  w = with_times(std::move(w), 1 + share * (w.several_ranks->compute_factor - 1));
  w.blocks = std::move(blocks);
  return w;
}

Cluster slowed_by(Cluster cluster, const Workload& w) {
  if (w.several_ranks && w.several_ranks->compute_slowdown && cluster.contention)
    cluster.contention->compute_slowdown = *w.several_ranks->compute_slowdown;
  return cluster;
}

// Elements, flops and times grow alike. Counts are rounded, and nothing becomes 0.
Workload scaled(Workload w, double factor) {
  check_factor(factor);
  validate(w);
  if (factor == 1) return w;
  const auto count = [factor](std::int64_t n) {
    return n == 0 ? 0 : std::max<std::int64_t>(1, std::llround(static_cast<double>(n) * factor));
  };
  std::vector<Block> blocks;
  for (const Block& block : w.blocks) blocks.push_back(scaled(block, factor));
  w = with_times(std::move(w), factor);
  w.blocks = std::move(blocks);
  for (Layer& layer : w.layers) layer.flops *= factor;
  for (Gradient& g : w.gradients) g.elements = whole_rows(count(g.elements), g.rows);
  w.buffer_bytes = count(w.buffer_bytes);
  if (w.several_ranks) times(w.several_ranks->communication_s, factor);
  for (OtherCollective& o : w.other_collectives) o.bytes = count(o.bytes);
  w.name += fmt::format(" x {:g}", factor);
  return w;
}

// The device's parts take 1/speed of their time; the host's stay. So T_1 = 100 ms with 20 ms of
// host work becomes 60 ms on a device twice as fast, and not 50. The interval shrinks as T_1 does.
Workload on_device(Workload w, double speed) {
  check_factor(speed);
  if (speed == 1) return w;
  validate(w);
  const OneRankParts parts = parts_of(w);
  const double before_s = w.one_rank_step_s();
  const double device_s = parts.forward_s + parts.backward_s + parts.update_s;
  // Parts that add up to more than T_1 count as shrunk, on this device and on the other one.
  const auto fit = [](std::optional<double>& s, double part) {
    if (s) s = std::min(*s, part);
  };
  fit(w.forward_s, parts.forward_s), fit(w.update_s, parts.update_s), fit(w.tail_s, parts.tail_s);
  each_device_time(w, [speed](double& s) { s /= speed; });
  for (Block& b : w.blocks) times(b.factor_a_s, 1 / speed), times(b.factor_g_s, 1 / speed);
  for (AddCost& cost : w.add_cost) cost.seconds /= speed;
  if (w.step_s) *w.step_s += device_s / speed - device_s;
  const double change = before_s > 0 ? w.one_rank_step_s() / before_s : 1;
  times(w.step_low_s, change), times(w.step_high_s, change);
  if (w.step_s || w.forward_s)
    w.step_origin += fmt::format("{}{} of a device {:g} x as fast, {} of its host as before",
                                 w.step_origin.empty() ? "" : "; ", format_time(device_s / speed),
                                 speed, format_time(parts.tail_s));
  w.recorded.reset(), w.several_ranks.reset();
  w.name += fmt::format(", device {:g}x", speed);
  return w;
}

Cluster on_device(Cluster c, double speed) {
  check_factor(speed);
  for (CodecCost& codec : c.codecs) {
    if (!codec.is_own() || codec.on == CodingPlace::codec) continue;
    for (double* s : {&codec.encode_fixed_s, &codec.decode_fixed_s, &codec.encode_tensor_s,
                      &codec.decode_tensor_s})
      *s /= speed;
    for (double* rate : {&codec.encode_bytes_per_s, &codec.decode_bytes_per_s, &codec.flops_per_s})
      *rate *= speed;
  }
  if (!c.second_order) return c;
  SecondOrderCost& k = *c.second_order;
  for (double* s : {&k.inverse_fixed_s, &k.inverse_s_per_cube, &k.factor_fixed_s,
                    &k.factor_s_per_input, &k.factor_s_per_element, &k.precondition_fixed_s})
    *s /= speed;
  k.factor_flops_per_s *= speed, k.precondition_flops_per_s *= speed;
  for (InverseSample& sample : k.inverses) sample.seconds /= speed;
  for (BatchSample& sample : k.batches) sample.one_by_one_s /= speed, sample.together_s /= speed;
  return c;
}

// An example: T_1 is 100 ms (95 .. 105) and the step 90 ms. All of T_1's interval is above the
// step, so there is no factor: the two were measured under different load. With a step of 98 ms the
// factor is 1.02, which is rounding and noise.
ScalingFactor scaling_factor_of(const Bounded& one_rank_s, double step_s) {
  constexpr double kRounding = 1e-3;
  const double least = one_rank_s.low_or_value();
  if (least <= (1 + kRounding) * step_s) return {one_rank_s.value / step_s, ""};
  return {std::nullopt,
          fmt::format("no scaling factor: T_1, {}{}, is above the step of {}, as if a rank were "
                      "faster among others than alone. The two were measured under different load. "
                      "Record both again, one after the other",
                      format_time(least), one_rank_s.low ? " or more" : "", format_time(step_s))};
}

}  // namespace linerate::doc
