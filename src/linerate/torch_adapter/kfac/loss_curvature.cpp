// Gradients of losses with respect to a model's outputs, for labels that are given or drawn from
// the model's own distribution. sample_fisher() starts a backward pass from them. The drawn labels
// depend on (seed, step, sample) alone. So a batch that is split over three ranks draws the labels
// that one rank would draw for the whole.
//
// Also the number of terms by which a loss divides its sum, from LossAverage and the shape of the
// output. Example: outputs [32, 10, 7, 7] of a mean over samples and positions have 32 * 49 terms.
#include "linerate/torch_adapter/kfac/loss_curvature.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <numbers>

#include "linerate/core/index.hpp"
#include "linerate/core/rng.hpp"
#include "linerate/torch_adapter/kfac/host_code.hpp"

namespace linerate::torch_adapter {
namespace {

std::uint64_t sample_key(const LabelDraw& draw, std::int64_t sample) {
  return random_key(random_key(draw.seed, static_cast<std::uint64_t>(draw.step)),
                    static_cast<std::uint64_t>(draw.first_sample + sample));
}

/// Standard normal (Box & Muller 1958).
double random_normal(std::uint64_t key, std::uint64_t counter) {
  const double u = 1 - random_unit(key, 2 * counter), v = random_unit(key, 2 * counter + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

/// A contiguous f64 tensor of values, each a function of its sample's key and its index within the
/// sample.
template <typename Value>
at::Tensor drawn(c10::IntArrayRef sizes, const LabelDraw& draw, Value&& value) {
  at::Tensor result = at::empty(sizes, at::TensorOptions().dtype(at::kDouble));
  double* to = result.mutable_data_ptr<double>();
  const std::int64_t samples = sizes.empty() ? 1 : sizes[0];
  const std::int64_t each = samples > 0 ? result.numel() / samples : 0;
  for (std::int64_t n = 0; n < samples; ++n) {
    const std::uint64_t key = sample_key(draw, n);
    for (std::int64_t j = 0; j < each; ++j) *to++ = value(key, static_cast<std::uint64_t>(j));
  }
  return result;
}

/// drawn_classes() of p [N, positions..., classes] on a device. The random numbers are drawn on the
/// host and copied there.
at::Tensor enqueued_classes(const at::Tensor& p, const LabelDraw& draw) {
  const at::Tensor u =
      drawn(p.sizes().slice(0, to_index(p.dim() - 1)), draw, random_unit).to(p.device());
  return u.unsqueeze(-1).ge(p.cumsum(-1)).sum(-1).clamp_max(p.size(-1) - 1);
}

/// Class indices [N, positions...] drawn from p [N, classes, positions...] by inversion: the first
/// class at which the cumulated probability exceeds a uniform number. For p = (0.2, 0.5, 0.3) a
/// draw of 0.6 gives class 1.
at::Tensor drawn_classes(const at::Tensor& p, const LabelDraw& draw) {
  const at::Tensor last = p.movedim(1, -1).to(at::kDouble).contiguous();
  if (!runs_on_host(p)) return enqueued_classes(last, draw);
  const std::int64_t classes = last.size(-1);
  const double* at_term = last.const_data_ptr<double>();
  const at::Tensor label = drawn(last.sizes().slice(0, to_index(last.dim() - 1)), draw,
                                 [&](std::uint64_t key, std::uint64_t j) {
                                   double left = random_unit(key, j);
                                   std::int64_t c = 0;
                                   while (c + 1 < classes && left >= at_term[c])
                                     left -= at_term[c++];
                                   at_term += classes;
                                   return static_cast<double>(c);
                                 });
  return label.to(at::kLong);
}

}  // namespace

at::Tensor labelled_gradient(const at::Tensor& output, LossKind kind, const at::Tensor& labels) {
  const at::Tensor z = output.detach();
  switch (kind) {
    case LossKind::softmax_cross_entropy:
      return at::softmax(z, 1) - at::one_hot(labels, z.size(1)).movedim(-1, 1).to(z.scalar_type());
    case LossKind::binary_cross_entropy:
      return at::sigmoid(z) - labels.to(z.scalar_type());
    case LossKind::squared_error:
      return (z - labels) * 2;
    case LossKind::half_squared_error:
      break;
  }
  return z - labels;
}

at::Tensor sampled_gradient(const at::Tensor& output, LossKind kind, const LabelDraw& draw) {
  const at::Tensor z = output.detach();
  switch (kind) {
    case LossKind::softmax_cross_entropy:
      return labelled_gradient(z, kind, drawn_classes(at::softmax(z, 1), draw));
    case LossKind::binary_cross_entropy: {
      const at::Tensor u = drawn(z.sizes(), draw, random_unit).to(z.device());
      return labelled_gradient(z, kind, u < at::sigmoid(z));
    }
    case LossKind::squared_error:  // exp(-(z - t)²): variance 1/2
      return drawn(z.sizes(), draw, random_normal).to(z.options()) * -std::numbers::sqrt2;
    case LossKind::half_squared_error:
      break;
  }
  return -drawn(z.sizes(), draw, random_normal).to(z.options());
}

double loss_terms(const LossAverage& average, const at::Tensor& output,
                  const CountedPositions& counted) {
  const auto samples = static_cast<double>(output.dim() > 0 ? output.size(0) : 1);
  const auto features = static_cast<double>(output.dim() > 1 ? output.size(1) : 1);
  switch (average.over) {
    case LossAverage::Over::sum:
      return 1;
    case LossAverage::Over::batch:
      return counted.given() && counted.by_sample() ? counted.labels() : samples;
    case LossAverage::Over::batch_positions:
      return counted.given() ? counted.labels() : static_cast<double>(output.numel()) / features;
    case LossAverage::Over::batch_positions_features:
      return counted.given() ? counted.labels() * features : static_cast<double>(output.numel());
    case LossAverage::Over::terms:
      break;
  }
  return average.terms;
}

}  // namespace linerate::torch_adapter
