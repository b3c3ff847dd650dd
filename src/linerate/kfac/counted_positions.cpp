// read_loss() finds out how a loss reads an output: where the classes are, and which targets count.
// The layout follows from the shapes if they leave no doubt. For an output [8, 100, 20] targets [8,
// 20] mean classes in dimension 1, and targets [8, 100] mean classes last. If the shapes are [8,
// 20, 20] and [8, 20], the caller has to say.
#include "linerate/kfac/counted_positions.hpp"

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

namespace linerate::torch_adapter {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

/// The number of leading dimensions of an operator's input that count samples and positions.
std::int64_t leading_dims(const at::Tensor& tensor, LayerKind kind) {
  switch (kind) {
    case LayerKind::embedding:
      return tensor.dim();
    case LayerKind::linear:
      return tensor.dim() - 1;
    case LayerKind::conv:
      return tensor.dim() == 4 ? 1 : 0;
    default:
      return 0;
  }
}

using Sizes = std::vector<std::int64_t>;

/// The sizes of an output's targets: the output's own without the classes.
Sizes sizes_of_targets(const at::Tensor& output, OutputLayout layout) {
  Sizes sizes = output.sizes().vec();
  if (sizes.empty()) return sizes;
  const bool last = layout == OutputLayout::classes_last || sizes.size() == 1;
  sizes.erase(last ? sizes.end() - 1 : sizes.begin() + 1);
  return sizes;
}

/// Whether targets have the sizes that this layout gives them, or the same number in one dimension.
bool fits_targets(const at::Tensor& output, const Sizes& target, OutputLayout layout) {
  const Sizes expected = sizes_of_targets(output, layout);
  return target == expected ||
         (c10::multiply_integers(target) == c10::multiply_integers(expected) &&
          (target.size() == 1 || expected.size() <= 1));
}

/// The layout that fits alone.
std::optional<OutputLayout> layout_of(const at::Tensor& output, const Sizes& target) {
  const bool last = fits_targets(output, target, OutputLayout::classes_last);
  if (last == fits_targets(output, target, OutputLayout::classes_second)) return std::nullopt;
  return last ? OutputLayout::classes_last : OutputLayout::classes_second;
}

/// Whether targets are class indices. Values of elements and probabilities of classes are not.
bool are_classes(const at::Tensor& target, const at::Tensor& output) {
  return at::isIntegralType(target.scalar_type(), /*includeBool=*/false) &&
         (target.sizes() != output.sizes() || output.dim() == 0);
}

[[noreturn]] void refuse_targets(const at::Tensor& output, const at::Tensor& target, bool said) {
  const Sizes second = sizes_of_targets(output, OutputLayout::classes_second);
  std::string expected = fmt::format("[{}]", fmt::join(second, ", "));
  if (output.dim() > 2)
    expected +=
        fmt::format(" if the output's classes are its dimension 1, [{}] if they are the last: {}",
                    fmt::join(sizes_of_targets(output, OutputLayout::classes_last), ", "),
                    said ? "the layout that is named does not fit" : "one of them");
  throw UsageError(fmt::format("K-FAC: loss_of(): found targets {} for the output {}; expected {}",
                               shape_of(target), shape_of(output), expected));
}

[[noreturn]] void ask_for_layout(const at::Tensor& output, const at::Tensor& target, bool both) {
  const std::string found =
      both ? fmt::format("found targets {}, which fit both layouts of", shape_of(target))
           : std::string("found no targets of classes, which would say the layout of");
  throw UsageError(
      fmt::format("K-FAC: loss_of(): {} the output {}. Give layout=\"classes_last\" if it is [N, "
                  "positions..., C], as a language model's [B, T, V] is, or "
                  "layout=\"classes_second\" if it is [N, C, positions...]",
                  found, shape_of(output)));
}

/// The mask for all rows of the tensor that the output is a slice of, as a language model's
/// logits[:, :-1] are. Layers see all rows, also those outside of the slice, which do not count.
/// Undefined if the output is not known to be such a slice.
///
/// Example: logits of 2 texts with 5 words each, so 10 rows, of which the loss sees 4 of each text.
/// By offsets and strides these are the rows 0 to 3 and 5 to 8. The answer is their mask, and false
/// at the rows 4 and 9.
at::Tensor among_all_rows(const at::Tensor& output, const at::Tensor& counted,
                          std::int64_t class_dim) {
  if (!output.is_view() || output.stride(class_dim) != 1) return {};
  const at::Tensor whole(output._base());
  const std::int64_t classes = output.size(class_dim);
  if (!whole.is_contiguous() || whole.size(-1) != classes || counted.numel() == 0 ||
      whole.numel() == output.numel())
    return {};
  at::Tensor rows = at::full({1}, output.storage_offset() - whole.storage_offset(), at::kLong);
  for (std::int64_t d = 0; d < output.dim(); ++d)
    if (d != class_dim)
      rows = rows.unsqueeze(-1) + at::arange(output.size(d), at::kLong) * output.stride(d);
  at::Tensor all = at::zeros({whole.numel() / classes}, counted.options());
  all.index_put_({rows.div(classes, "floor").flatten().to(counted.device())}, counted.flatten());
  return all;
}

/// Whether the number of terms depends on where classes lie.
bool needs_layout(const LossAverage& average, bool has_target) {
  if (average.over == LossAverage::Over::batch_positions) return true;
  return average.over == LossAverage::Over::batch && !has_target;
}

}  // namespace

CountedPositions::CountedPositions(const at::Tensor& counted, const at::Tensor& rows) {
  if (counted.scalar_type() != at::kBool || counted.dim() < 1)
    throw UsageError(
        fmt::format("K-FAC: count_only(): expected a bool tensor with one entry per label, found "
                    "{} of {}; give targets != ignore_index",
                    shape_of(counted), c10::toString(counted.scalar_type())));
  counted_ = counted.detach().clone();
  rows_ = rows.defined() ? rows : counted_;
  labels_ = counted_.sum().item<double>();
}

/// A layer's input without the rows that do not count. The rows are recognised by the input's
/// leading sizes. If these do not fit the mask, the input stays whole.
LayerInput CountedPositions::of(const LayerInput& input, LayerKind kind) const {
  LayerInput left = input;
  const std::int64_t leading = given() ? leading_dims(input.tensor, kind) : 0;
  if (leading == 0) return left;
  const auto sizes = input.tensor.sizes().slice(0, to_index(leading));
  const std::int64_t rows = c10::multiply_integers(sizes);
  const bool same_order = leading == 1 || rows_.dim() == 1 || sizes[0] == rows_.size(0);
  if (leading >= rows_.dim() && sizes.slice(0, to_index(rows_.dim())) == rows_.sizes())
    left.tensor = input.tensor.index({rows_});
  else if (rows == rows_.numel() * input.images && same_order)
    left.tensor = input.tensor.flatten(0, leading - 1)
                      .index({rows_.flatten().repeat_interleave(input.images)});
  return left;
}

at::Tensor CountedPositions::masked(const at::Tensor& terms) const {
  if (!given()) return terms;
  if (terms.sizes() == counted_.sizes()) return terms * counted_;
  const Sizes labels = sizes_of_targets(terms, OutputLayout::classes_second);
  if (terms.dim() < 2 || !fits_targets(terms, sizes(), OutputLayout::classes_second))
    throw UsageError(
        fmt::format("K-FAC: count_only() was given labels {}, the loss's output is {}; expected "
                    "[N, classes, positions...] for labels [N, positions...], or a row a label",
                    shape_of(counted_), shape_of(terms)));
  return terms * counted_.reshape(labels).unsqueeze(1);
}

ReadLoss read_loss(const at::Tensor& output, const at::Tensor& target, const LossView& view,
                   const LossAverage& average, const CountedPositions& known) {
  const bool classes = target.defined() && are_classes(target, output);
  std::optional<OutputLayout> layout = view.layout;
  if (classes) {
    const auto fits = [&](OutputLayout one) {
      return fits_targets(output, target.sizes().vec(), one);
    };
    if (layout ? !fits(*layout)
               : !fits(OutputLayout::classes_second) && !fits(OutputLayout::classes_last))
      refuse_targets(output, target, view.layout.has_value());
    if (!layout) layout = layout_of(output, target.sizes().vec());
  } else if (known.given() && !layout) {
    layout = layout_of(output, known.sizes());
  }
  if (output.dim() > 2 && !layout && (classes || needs_layout(average, target.defined())))
    ask_for_layout(output, target, classes);
  ReadLoss read{output, classes ? CountedPositions() : known};
  if (output.dim() > 2 && layout == OutputLayout::classes_last) read.output = output.movedim(-1, 1);
  if (!classes) return read;
  if (output.dim() == 1) read.output = output.unsqueeze(0);  // classes of a single sample
  Sizes labels = read.output.sizes().vec();
  labels.erase(labels.begin() + 1);
  const c10::NoGradGuard no_grad;
  const at::Tensor labels_counted = target.detach().ne(view.ignore_index).reshape(labels);
  const bool last = output.dim() < 3 || layout == OutputLayout::classes_last;
  CountedPositions counted(labels_counted,
                           among_all_rows(output, labels_counted, last ? output.dim() - 1 : 1));
  if (!counted.all()) read.counted = std::move(counted);
  return read;
}

// Gradients of losses with respect to a model's outputs, for labels that are given or drawn from
// the model's own distribution. sample_fisher() starts a backward pass from them. The drawn labels
// depend on (seed, step, sample) alone. So a batch that is split over three ranks draws the labels
// that one rank would draw for the whole.
//
// Also the number of terms by which a loss divides its sum, from LossAverage and the shape of the
// output. Example: outputs [32, 10, 7, 7] of a mean over samples and positions have 32 * 49 terms.

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

/// Class indices [N, positions...] drawn from p [N, classes, positions...] by inversion: the first
/// class at which the cumulated probability exceeds a uniform number. For p = (0.2, 0.5, 0.3) a
/// draw of 0.6 gives class 1. The random numbers are drawn on the host.
at::Tensor drawn_classes(const at::Tensor& p, const LabelDraw& draw) {
  const at::Tensor last = p.movedim(1, -1).to(at::kDouble);
  const at::Tensor u =
      drawn(last.sizes().slice(0, to_index(last.dim() - 1)), draw, random_unit).to(p.device());
  return u.unsqueeze(-1).ge(last.cumsum(-1)).sum(-1).clamp_max(last.size(-1) - 1);
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
