// How codecs choose entries where tensors lie: for all tensors of a bucket at a time, each by
// itself. The host's choice of one tensor has branches that depend on values. Here a branch would
// wait for the device. So each way is tried for all tensors, and the device selects between the
// results.
//
// Example: threshold with three tensors. The last tau selects a fitting number in tensors 0 and 2,
// but too few in tensor 1. The exact tau is looked for in all three, by the sort that counts are
// taken from as well. Then at::where() takes the last tau for 0 and 2 and the exact one for 1.
#include <algorithm>
#include <cmath>
#include <memory>

#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/torch_codecs/bucket_arrays.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {
namespace {

using compress::EntryFormat;

std::vector<std::int64_t> most_of(const EntryFormat& format, const Magnitudes& of) {
  return mapped(of.rows.sizes(), [&](std::int64_t n) { return format.most_of(n); });
}

TensorOps::Values nows_of(const std::vector<KeptTensor*>& kept) {
  return mapped(kept, &KeptTensor::now);
}
/// What is kept, as an array that rows lay out: the very one of the last step, or a copy.
at::Tensor array_of(const std::vector<KeptTensor*>& kept, const Padded& rows) {
  const at::Tensor array = KeptTensor::array_of(kept, rows.places);
  return array.defined() && array.numel() == rows.elements ? array : rows.array(nows_of(kept));
}
/// `values`: an array that rows lay out, which nobody else writes to.
void write_parts(const std::vector<KeptTensor*>& kept, const Padded& rows,
                 const at::Tensor& values) {
  const at::Tensor array = values.view({-1});
  const TensorOps::Values parts = rows.parts_of(array);
  for (std::size_t t = 0; t < kept.size(); ++t) kept[t]->write(parts[t], array);
}

/// kernel/magnitude.hpp's bits_at_least() of f64 thresholds: i32. Beyond f32: infinity's.
at::Tensor bits_at_least(const at::Tensor& thresholds) {
  const at::Tensor nearest = thresholds.to(at::kFloat);
  return bits_of(nearest) + (nearest.to(at::kDouble) < thresholds);
}

/// The bisection of compress/method/mstopk.cpp with numbers that stay on the device. It makes as
/// many counts of all elements as it may need, because the host cannot see that the search is over.
/// Larger thresholds are reached by fewer magnitudes. So the best thresholds are a least and a
/// largest one among those that were tried. Later ones than needed change nothing.
class Bisection {
 public:
  Bisection(const Magnitudes& of, const at::Tensor& k) : of_(of), k_(k) {}

  void run(int halvings) {
    const at::Tensor absolute = of_.x.abs();
    const at::Tensor count = of_.count(of_.bits() > 0).to(at::kDouble);
    const at::Tensor sum = of_.table(absolute.sum(1, false, at::kDouble).unsqueeze(0), 0).sum(2)[0];
    const at::Tensor n = listed(of_.rows.sizes(), of_.whole()).to(at::kDouble);
    const at::Tensor mean = sum / count.clamp_min(1) * count / n;
    const at::Tensor largest = of_.table(absolute.amax(1).unsqueeze(0), 0).amax(2)[0];
    const auto tensors = static_cast<std::int64_t>(of_.tensors());
    counts_ = at::zeros({halvings + 1, tensors}, of_.whole());
    const at::Tensor is_above = reach(absolute, mean) >= k_;
    const at::Tensor base = mean * is_above;
    const at::Tensor width = at::where(is_above, largest.to(at::kDouble), mean) - base;
    // Of 0 and 1; every half is exact as long as it counts.
    const at::Tensor ratio = at::full_like(mean, 0.5);
    double step = 0.25;
    for (int i = 0; i < halvings; ++i, step /= 2) {
      const at::Tensor fits = reach(absolute, base + ratio * width) <= k_;
      ratio.add_(step).add_(fits, -2 * step);
    }
  }
  /// i32[tensors]: reached by the most elements that are no more than k, and by the fewest that are
  /// more.
  at::Tensor upper() const {
    return at::where(fits(), least(), full(compress::kNoMagnitude)).amin(0);
  }
  at::Tensor lower() const { return at::where(fits(), full(0), least()).amax(0); }

 private:
  /// [tensors]: how many magnitudes reach a threshold, f64[tensors].
  at::Tensor reach(const at::Tensor& absolute, const at::Tensor& threshold) {
    const at::Tensor counts = counts_.select(0, static_cast<std::int64_t>(thresholds_.size()));
    thresholds_.push_back(threshold);
    const at::Tensor is_reached = absolute >= of_.by_row(threshold);
    return counts.index_add_(0, of_.row_tensors, is_reached.sum(1, false, counts.scalar_type()));
  }
  at::Tensor fits() const { return counts_ <= k_; }
  at::Tensor least() const { return bits_at_least(at::stack(thresholds_)); }
  at::Tensor full(std::int64_t bits) const {
    return at::full({}, bits, of_.x.options().dtype(at::kInt));
  }

  const Magnitudes& of_;
  const at::Tensor& k_;                 // [tensors]
  std::vector<at::Tensor> thresholds_;  // in the order in which they were tried
  at::Tensor counts_;                   // [tried][tensors]
};

/// dgc's thresholds, f32[tensors]: of each tensor the magnitude that the density's share of a
/// sample reaches. The host computes the sample's places, because they follow from keys and sizes
/// alone.
at::Tensor sampled_thresholds(const Magnitudes& of, const std::vector<compress::Keys>& keys,
                              double density) {
  std::vector<std::int64_t> firsts, strides, sizes, k;
  for (std::size_t t = 0; t < of.tensors(); ++t) {
    const auto& [first, n] = of.rows.places[t];
    const std::int64_t stride = compress::dgc_stride(density, n);
    const auto start =
        static_cast<std::int64_t>(random_below(keys[t].own, 0, static_cast<std::uint64_t>(stride)));
    firsts.push_back(first + start);
    strides.push_back(stride);
    sizes.push_back((n - start + stride - 1) / stride);
    k.push_back(static_cast<std::int64_t>(std::ceil(density * static_cast<double>(sizes.back()))));
  }
  const Padded samples(sizes, 1);
  const at::TensorOptions whole = of.whole();
  const auto numbers = listed({firsts, strides}, whole);
  const at::Tensor tensor = samples.row_tensors(whole);
  const at::Tensor at = numbers[0].index_select(0, tensor) +
                        samples.row_numbers(whole) * numbers[1].index_select(0, tensor);
  const at::Tensor taken = of.x.view({-1}).index_select(0, at);
  const Magnitudes sampled(samples.parts_of(taken));
  return floats_of(sampled.kth_largest(sampled.sorted(), k));
}

/// [tensors]: how many magnitudes of each tensor reach a threshold, which is lowered while they are
/// much fewer than wanted. Counts for all the lowered thresholds are taken, and the first that is
/// enough is used. In sorted magnitudes a count is a binary search, so ten of them cost little.
at::Tensor count_of_enough(const Magnitudes& of, const Magnitudes::Sorted& sorted,
                           at::Tensor threshold, const at::Tensor& wanted) {
  std::vector<at::Tensor> tried = {threshold};
  while (tried.size() < compress::kDgcMostPasses)
    tried.push_back(tried.back() * compress::kDgcLowered);
  const at::Tensor least = magnitude_bits(at::stack(tried)).clamp_min(1);
  const at::Tensor counts = of.count_from(sorted, least);
  // compress::is_enough_for_dgc() of numbers on the device.
  const at::Tensor is_enough = at::bitwise_or(5 * counts >= 4 * wanted, least == 1);
  is_enough.select(0, compress::kDgcMostPasses - 1).fill_(true);
  const at::Tensor first = is_enough.to(at::kInt).argmax(0, /*keepdim=*/true);
  return counts.gather(0, first).squeeze(0);
}

}  // namespace

TensorOps::Chosen TensorOps::choose_largest(const Sending& tensors, OfAll<Picking>,
                                            const EntryFormat& format) {
  const Values v = corrected(tensors);
  const auto of = std::make_shared<Magnitudes>(v);
  return {v, of, of->largest(most_of(format, *of)), {}, {}, {}};
}

TensorOps::Chosen TensorOps::choose_by_halving(const Sending& tensors, OfAll<Picking>,
                                               const EntryFormat& format, int halvings) {
  const Values v = corrected(tensors);
  const auto of = std::make_shared<Magnitudes>(v);
  const at::Tensor k = listed(most_of(format, *of), of->whole());
  Bisection bisection(*of, k);
  bisection.run(halvings);
  const at::Tensor upper = of->reach(bisection.upper()), wanted = k - of->count(upper);
  // A run of the others from a random place; of none if the upper ones are k.
  const at::Tensor others = of->reach(bisection.lower());
  others.bitwise_and_(upper.logical_not()).bitwise_and_(of->rows.is_filled(of->whole()));
  const at::Tensor candidates = of->count(others);
  const auto random = mapped(tensors.keys, [](const compress::Keys& keys) {
    return at::Scalar(linerate::random_unit(keys.own, 0));
  });
  const at::Tensor run = ((candidates - wanted + 1).to(at::kDouble) *
                          listed(random, of->x.options().dtype(at::kDouble)))
                             .to(candidates.scalar_type());
  // The number of an element among all others, from 1.
  const at::Tensor start = candidates.cumsum(0, candidates.scalar_type()) - candidates + run;
  const at::Tensor number = of->running_count(others).view(others.sizes());
  others.bitwise_and_(number > of->by_row(start))
      .bitwise_and_(number <= of->by_row(start + wanted))
      .bitwise_or_(upper);
  return {v, of, {}, others, k, {}};
}

namespace {

/// The magnitudes to send from, i32[tensors]: by the last tau, or the exact one if the last is off.
/// Keeps the next tau. So the exact magnitude is looked for in every step.
at::Tensor least_by_last(const Magnitudes& of, const EntryFormat& format,
                         const std::vector<KeptTensor*>& taus) {
  std::vector<std::int64_t> k, limits;
  for (const std::int64_t n : of.rows.sizes()) {
    k.push_back(compress::entries_of(format.density, n));
    limits.push_back(std::min(format.most_of(n), 2 * k.back()));
  }
  const auto numbers = listed({k, limits}, of.whole());
  const at::Tensor &target = numbers[0], &limit = numbers[1];
  const at::Tensor tau = at::stack(nows_of(taus)), by_tau = magnitude_bits(tau);
  const Magnitudes::Sorted sorted = of.sorted();
  const at::Tensor count = of.count_from(sorted, by_tau);
  const at::Tensor is_near = at::bitwise_and(count <= limit, 2 * count >= target);
  const at::Tensor keeps = at::bitwise_and(tau > 0, is_near);
  const at::Tensor share = count.to(at::kDouble) / target.to(at::kDouble);
  const at::Tensor followed =
      (tau.to(at::kDouble) * share.pow(compress::kTauFollows)).to(at::kFloat);
  const at::Tensor exact = of.kth_largest(sorted, k), is_some = exact > 0;  // 0: nothing is sent
  const at::Tensor next = at::where(keeps, followed, at::where(is_some, floats_of(exact), tau));
  for (std::size_t t = 0; t < taus.size(); ++t)
    taus[t]->write(next.select(0, static_cast<std::int64_t>(t)), next);
  const at::Tensor least_exact =
      exact.masked_fill(is_some.logical_not(), std::int64_t{compress::kNoMagnitude});
  return at::where(keeps, by_tau, least_exact);
}

}  // namespace

/// If those that reach tau are more than the format's, all of the tensor is sent.
TensorOps::Chosen TensorOps::choose_from(const Sending& tensors, OfAll<Picking>,
                                         const EntryFormat& format, std::optional<float> tau,
                                         OfAll<KeptNumber> taus) {
  const Values v = corrected(tensors);
  const auto of = std::make_shared<Magnitudes>(v);
  const at::Tensor least =
      tau ? at::full({std::ssize(v)}, std::int64_t{compress::magnitude_bits(*tau)},
                     tensors.values.options().dtype(at::kInt))
          : least_by_last(*of, format, taus);
  const at::Tensor mask = of->reach(least), counts = of->count(mask);
  return {v, of, {}, mask, counts, counts > listed(most_of(format, *of), of->whole())};
}

void TensorOps::accumulate(const Sending& tensors, OfAll<KeptValues> kept_u,
                           OfAll<KeptValues> kept_r, const compress::DgcSettings& settings) {
  const auto m = static_cast<float>(settings.momentum);
  const Magnitudes gradients(parts_of(tensors.values, tensors.places));
  const Padded& rows = gradients.rows;
  at::Tensor step = gradients.x;
  if (settings.clip) {
    const at::Tensor squares = step.to(at::kDouble).square_().sum(1);
    const at::Tensor norm = gradients.table(squares.unsqueeze(0), 0).sum(2)[0].sqrt();
    const at::Tensor most =
        at::full_like(norm, *settings.clip / std::sqrt(static_cast<double>(tensors.ranks)));
    const at::Tensor scale = at::where(norm > most, (most / norm).to(at::kFloat), 1.0f);
    step = step * gradients.by_row(scale.to(at::kFloat));
  }
  const at::Tensor u = array_of(kept_u, rows).view_as(step);
  const at::Tensor next_u = settings.nesterov ? (u + step).mul_(m) : (u * m).add_(step);
  const at::Tensor next_r = array_of(kept_r, rows).view_as(step) + next_u;
  if (settings.nesterov) next_r.add_(step);
  write_parts(kept_u, rows, next_u);
  write_parts(kept_r, rows, next_r);
}

/// `kept` is an array since accumulate().
TensorOps::Chosen TensorOps::choose_by_sample(const Sending& tensors, OfAll<Picking>,
                                              const EntryFormat& format, OfAll<KeptValues> kept) {
  const Values r = mapped(kept, &KeptTensor::next);
  const auto of = std::make_shared<Magnitudes>(r, kept.front()->next_array().view({-1, kEntryRow}));
  const std::vector<std::int64_t> k = most_of(format, *of);
  const at::Tensor wanted = listed(k, of->whole());
  const Magnitudes::Sorted sorted = of->sorted();
  const at::Tensor threshold = sampled_thresholds(*of, tensors.keys, format.density);
  const at::Tensor counts = at::minimum(count_of_enough(*of, sorted, threshold, wanted), wanted);
  return {r, of, {}, of->largest(sorted, counts), counts, {}};
}

/// A new array, because entries are still read from the old one.
void TensorOps::clear(const Chosen& sent, OfAll<KeptValues> kept) {
  const at::Tensor& array = kept.front()->next_array();
  write_parts(kept, sent.of->rows, array.masked_fill(sent.mask.view({-1}), 0));
}

void TensorOps::add_momentum(const Arriving& tensors, OfAll<KeptValues> kept,
                             const compress::DenseMomentum& rule) {
  const Padded rows = Padded::of(tensors.places, 1);
  const at::Tensor mean = at::cat(means(tensors)), u = array_of(kept, rows);
  const at::Tensor taken = rule.take == 1 ? mean : mean * rule.take;
  const at::Tensor next = rule.nesterov ? (u + mean).mul_(rule.keep) : (u * rule.keep).add_(taken);
  write_parts(kept, rows, next);
  set_means(tensors, rows.parts_of(rule.nesterov ? next + mean : next));
}

/// The host draws, because places follow from the key alone. It copies them from pinned memory of
/// their own type, because a copy that converts would wait for itself.
void TensorOps::send_drawn(const Sending& tensors, OfAll<Drawn> drawn, double density,
                           compress::Places places) {
  const std::vector<std::int64_t> k = mapped(tensors.places, [&](const Place& place) {
    return compress::entries_of(density, place.elements);
  });
  const Padded sizes(k, 1);
  const at::TensorOptions whole = tensors.values.options().dtype(at::kInt);
  const at::Tensor index = at::empty(
      {sizes.elements}, at::TensorOptions(at::kInt).pinned_memory(!tensors.values.is_cpu()));
  auto* to = index.data_ptr<std::int32_t>();
  for (std::size_t t = 0; t < k.size(); ++t) {
    const auto& [first, n] = tensors.places[t];
    compress::draw_places(tensors.keys[t].shared, to_index(n), places, to_index(first),
                          std::span(to, to_index(k[t])));
    to += k[t];
  }
  *drawn.front() = index.to(whole, /*non_blocking=*/true).to(at::kLong);
  corrected(tensors);
  const bool keeps = tensors.keeps_residual();
  const at::Tensor& v = keeps ? tensors.next : tensors.values;
  at::Tensor sent = v.index_select(0, *drawn.front());
  if (!keeps) {
    std::vector<at::Scalar> unbiased;
    for (std::size_t t = 0; t < k.size(); ++t)
      unbiased.emplace_back(static_cast<float>(static_cast<double>(tensors.places[t].elements) /
                                               static_cast<double>(k[t])));
    sent = sent * spread(listed(unbiased, sent.options()), k);
  }
  sent = sent + 0.0f;
  at::_foreach_copy_(viewed(tensors.payloads, at::kFloat), sizes.parts_of(sent));
  if (keeps) tensors.next.index_fill_(0, *drawn.front(), 0);
}

void TensorOps::average_drawn(const Arriving& tensors, OfAll<Drawn> drawn, double density) {
  const Values sums = sums_in(tensors, at::kFloat, "randomk", [&](std::size_t t) {
    return compress::entries_of(density, tensors.places[t].elements);
  });
  const float share = 1.0f / static_cast<float>(tensors.arrived.front().ranks);
  at::_foreach_zero_(means(tensors));
  tensors.means.index_copy_(0, *drawn.front(), at::cat(sums) * share);
}

namespace {

at::Tensor levels_of(const at::Tensor& codes, float tau) {
  return (codes.to(at::kFloat) - 1) * tau;
}

}  // namespace

void TensorOps::send(const Sending& tensors, const compress::TwoBitFormat& format) {
  const Values v = corrected(tensors);
  const Padded rows = Padded::of(v, kEntryRow);
  const at::Tensor x = rows.array(v).view({-1, kEntryRow});
  const float tau = format.tau;
  at::Tensor codes = 1 + (x >= tau).to(at::kByte) - (x <= -tau).to(at::kByte);
  if (tensors.keeps_residual())
    at::_foreach_sub_(v, rows.parts_of(levels_of(codes, tau).view({-1})));
  codes = codes * rows.is_filled(x.options());
  at::_foreach_copy_(tensors.payloads, rows.codes_of_each(pack_codes(codes.view({-1}), 2), 2));
}

void TensorOps::receive(const Arriving& tensors, const compress::TwoBitFormat& format) {
  const Padded rows = Padded::of(tensors.places, kEntryRow);
  const at::Tensor is_filled = rows.is_filled(tensors.means.options()).view({-1});
  check_all_gathered(tensors, "threshold", [&](std::size_t t) {
    return compress::two_bit_bytes(rows.places[t].elements);
  });
  set_average(tensors, rows, [&](const Values& payloads, std::size_t) {
    const at::Tensor bytes = at::zeros({rows.elements / 4}, payloads.front().options());
    at::_foreach_copy_(rows.codes_of_each(bytes, 2), payloads);
    const at::Tensor codes = unpack_codes(bytes, rows.elements, 2);
    tensors.note_damage((codes > is_filled * 2).any());
    return levels_of(codes, format.tau);
  });
}

}  // namespace linerate::torch_codecs
