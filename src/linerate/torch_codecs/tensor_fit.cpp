// sidco where tensors lie. Unlike the others it waits for the device, once for the moments and once
// for each stage, because the fit is made on the host. A few numbers of each tensor are copied. All
// tensors of a bucket are searched together. So a bucket of three tensors waits as often as the
// tensor with the most stages.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "linerate/compress/method/entry_codecs.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/bucket_arrays.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {
namespace {

using compress::SidcoFit;
using compress::SidcoSearch;
using compress::SidcoSettings;

/// Sums of each tensor, on the host.
using Sums = std::vector<std::vector<double>>;

Sums on_host(const std::vector<at::Tensor>& by_tensor) {
  const at::Tensor all = at::stack(by_tensor, 1).cpu();
  const auto* from = all.data_ptr<double>();
  const auto width = static_cast<std::size_t>(all.size(1));
  Sums sums;
  for (std::int64_t t = 0; t < all.size(0); ++t, from += width)
    sums.emplace_back(from, from + width);
  return sums;
}

/// Rows added up, f64[tensors] each.
std::vector<at::Tensor> summed(const Magnitudes& of, const std::vector<at::Tensor>& of_rows) {
  return of.table(at::stack(of_rows), 0).sum(2).unbind(0);
}

std::vector<SidcoSearch> begun(const Magnitudes& of, const std::vector<int>& stages,
                               const SidcoSettings& settings) {
  const at::Tensor is_positive = of.bits() > 0;
  at::Tensor x = of.x.abs().to(at::kDouble);
  std::vector<at::Tensor> rows = {is_positive.sum(1).to(at::kDouble), x.sum(1)};
  if (settings.fit == compress::TailDistribution::gamma)
    rows.push_back(x.masked_fill(is_positive.logical_not(), 1).log_().sum(1));
  rows.insert(rows.begin() + 2, x.square_().sum(1));
  std::vector<SidcoSearch> searches;
  const Sums sums = on_host(summed(of, rows));
  for (std::size_t t = 0; t < of.tensors(); ++t) {
    const std::vector<double>& sum = sums[t];
    compress::FitMoments moments;
    if (sum[0] > 0)
      moments = {sum[1] / sum[0], compress::variance_of(sum[1], sum[2], sum[0]),
                 sum.size() > 3 ? sum[3] / sum[0] : 0};
    searches.emplace_back(settings.fit, moments, static_cast<std::uint64_t>(sum[0]),
                          to_index(of.rows.places[t].elements), settings.density, stages[t]);
  }
  return searches;
}

at::Tensor listed_bits(const std::vector<std::uint32_t>& bits, const at::Tensor& like) {
  const auto numbers =
      mapped(bits, [](std::uint32_t one) { return at::Scalar(static_cast<std::int64_t>(one)); });
  return listed(numbers, like.options().dtype(at::kInt));
}

/// The tails' moments, as the excess over the least magnitude. In a tail far from zero, sums of the
/// excess lose fewer digits.
std::vector<compress::TailFit> tails_of(const Magnitudes& of,
                                        const std::vector<std::uint32_t>& least) {
  const at::Tensor origin = listed_bits(least, of.x), bits = of.bits();
  const at::Tensor is_out = bits < of.by_row(origin), largest = bits.amax(1).unsqueeze(0);
  const at::Tensor smallest =
      bits.masked_fill_(is_out, std::int64_t{compress::kNoMagnitude}).amin(1).unsqueeze(0);
  const at::Tensor y = of.x.abs().to(at::kDouble);
  y.sub_(of.by_row(floats_of(origin).to(at::kDouble))).masked_fill_(is_out, 0);
  const at::Tensor count = is_out.logical_not().sum(1).to(at::kDouble), sum_of_y = y.sum(1);
  std::vector<at::Tensor> all = summed(of, {count, sum_of_y, y.square_().sum(1)});
  all.push_back(
      of.table(smallest, std::int64_t{compress::kNoMagnitude}).amin(2)[0].to(at::kDouble));
  all.push_back(of.table(largest, 0).amax(2)[0].to(at::kDouble));
  std::vector<compress::TailFit> tails;
  const Sums sums = on_host(all);
  for (std::size_t t = 0; t < sums.size(); ++t) {
    const std::vector<double>& sum = sums[t];
    const auto lowest = static_cast<std::uint32_t>(sum[3]);
    const double to_smallest = static_cast<double>(std::bit_cast<float>(lowest)) -
                               static_cast<double>(std::bit_cast<float>(least[t]));
    tails.push_back({static_cast<std::uint64_t>(sum[0]), lowest, static_cast<std::uint32_t>(sum[4]),
                     sum[0] > 0 ? sum[1] / sum[0] - to_smallest : 0,
                     compress::variance_of(sum[1], sum[2], sum[0])});
  }
  return tails;
}

/// All tensors' searches, a stage of all of them at a time.
std::vector<SidcoFit> fitted(const TensorOps::Values& v, const std::vector<int>& stages,
                             const SidcoSettings& settings) {
  const Magnitudes of(v);
  std::vector<SidcoSearch> searches = begun(of, stages, settings);
  const auto is_over = [](const SidcoSearch& one) { return one.is_over(); };
  while (!std::all_of(searches.begin(), searches.end(), is_over)) {
    std::vector<std::uint32_t> least;
    for (const SidcoSearch& search : searches)
      least.push_back(search.is_over() ? compress::kNoMagnitude : search.least());
    const std::vector<compress::TailFit> tails = tails_of(of, least);
    for (std::size_t t = 0; t < searches.size(); ++t)
      if (!searches[t].is_over()) searches[t].take(tails[t]);
  }
  return mapped(searches, &SidcoSearch::found);
}

bool is_sampled(const at::Tensor& v) { return to_index(v.numel()) >= compress::kSampledFrom; }

/// A run of every stretch, at a hashed place: random_below(0, stretch, runs) of a power of two.
at::Tensor sample_of(const at::Tensor& v) {
  constexpr auto stretch = static_cast<std::int64_t>(compress::kStretch);
  constexpr auto run = static_cast<std::int64_t>(compress::kSampledRun);
  constexpr int bits = std::bit_width(compress::kStretch / compress::kSampledRun) - 1;
  static_assert(compress::kStretch / compress::kSampledRun == 1u << bits);
  const auto whole = v.options().dtype(at::kLong);
  const at::Tensor j = at::arange(v.numel() / stretch, whole).unsqueeze(1);
  const at::Tensor place = shifted_right(random_bits(at::zeros_like(j), j), 64 - bits);
  const at::Tensor first = j * stretch + place * run;
  return v.index_select(0, (first + at::arange(run, whole)).view({-1}));
}

template <class T>
std::vector<T> those(const std::vector<T>& all, const std::vector<std::size_t>& which) {
  return mapped(which, [&](std::size_t t) { return all[t]; });
}

}  // namespace

/// As the host's, for all tensors of a bucket. Tensors that send their largest magnitudes are
/// collected, and these are picked in one more pass.
TensorOps::Chosen TensorOps::choose_by_fit(const Sending& tensors, OfAll<Picking>,
                                           OfAll<compress::Kept<compress::StageControl>> controls,
                                           const SidcoSettings& settings) {
  const Values v = corrected(tensors);
  const auto stages = mapped(
      controls, [&](const auto* control) { return compress::sidco_stages(settings, *control); });
  const Values looked_at =
      mapped(v, [](const at::Tensor& one) { return is_sampled(one) ? sample_of(one) : one; });
  std::vector<SidcoFit> fits = fitted(looked_at, stages, settings);
  // A large tensor whose sample fits nothing is looked at whole.
  std::vector<std::size_t> again;
  for (std::size_t t = 0; t < v.size(); ++t) {
    fits[t].by_sample = is_sampled(v[t]);
    if (fits[t].by_sample && fits[t].least == compress::kNoMagnitude) again.push_back(t);
  }
  if (!again.empty()) {
    const std::vector<SidcoFit> whole = fitted(those(v, again), those(stages, again), settings);
    for (std::size_t i = 0; i < again.size(); ++i) fits[again[i]] = whole[i];
  }

  const auto of = std::make_shared<Magnitudes>(v);
  const at::Tensor mask = of->reach(listed_bits(mapped(fits, &SidcoFit::least), of->x));
  const at::Tensor on_the_host = of->count(mask).cpu().to(at::kLong);
  const auto* reached = on_the_host.data_ptr<std::int64_t>();
  std::vector<std::int64_t> counts;
  std::vector<std::size_t> mended;  // by their largest magnitudes
  for (std::size_t t = 0; t < v.size(); ++t) {
    const compress::SidcoSent sent =
        compress::sidco_sent(settings, v[t].numel(), fits[t], reached[t], *controls[t]);
    counts.push_back(sent.count);
    if (sent.are_largest) mended.push_back(t);
  }
  if (!mended.empty()) {
    const Magnitudes some(those(v, mended));
    const at::Tensor largest = at::zeros({some.rows.elements}, mask.options());
    largest.index_fill_(0, some.largest(those(counts, mended)), true);
    at::_foreach_copy_(those(of->rows.parts_of(mask.view({-1})), mended),
                       some.rows.parts_of(largest));
  }
  return {v, of, {}, mask, listed(counts, of->whole()), {}};
}

}  // namespace linerate::torch_codecs
