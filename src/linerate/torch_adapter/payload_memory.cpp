#include "linerate/torch_adapter/payload_memory.hpp"

#include <ATen/Dispatch.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/DimVector.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "linerate/compress/method/formats.hpp"
#include "linerate/core/error.hpp"

namespace linerate::torch_adapter {
namespace {

/// Written once: the first touch of fresh pages happens here, not inside a backward pass.
at::Tensor zeros(std::int64_t elements, DType dtype, c10::Device device) {
  at::Tensor flat = at::empty({elements}, at::device(device).dtype(scalar_type(dtype)));
  if (device.is_cpu()) prefer_large_pages(flat.data_ptr(), flat.nbytes());
  return flat.zero_();
}

c10::Device device_of(const std::vector<const Parameter*>& parameters) {
  return parameters.front()->tensor.device();
}

double largest_magnitude(const at::Tensor& values) {
  if (values.numel() == 0) return 0;
  const auto [least, most] = at::aminmax(values);
  return std::max(-least.item<double>(), most.item<double>());
}

}  // namespace

/// Variants of a plan may take turns from step to step. Buckets that are the same stay where they
/// are, with .grad as views of them. Other payloads are kept by variant.
void PayloadMemory::lay_out(const doc::TaskGraph& graph,
                            const std::vector<const Parameter*>& parameter_at) {
  if (graph_ == &graph) return;
  const auto buckets = graph.buckets();
  const bool are_alike =
      !buckets_.empty() && graph.members == members_ &&
      std::ranges::equal(buckets, buckets_, [](const doc::Payload& a, const doc::Payload& b) {
        return a.dtype == b.dtype && a.begin == b.begin && a.end == b.end && a.flags == b.flags &&
               a.padded == b.padded;
      });
  if (!are_alike) make_buckets(graph, parameter_at);
  graph_ = &graph;
  values_.resize(buckets_.size());
  // Payloads other than buckets, made once for each variant.
  std::vector<at::Tensor>& others = others_[&graph];
  for (std::size_t p = buckets_.size() + others.size(); p < graph.payloads.size(); ++p)
    others.push_back(
        zeros(graph.payloads[p].padded, graph.payloads[p].dtype, device_of(parameter_at)));
  values_.insert(values_.end(), others.begin(), others.end());
  is_sent_as_is_.assign(slots_.size(), true);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (std::int32_t m = buckets_[b].begin; m < buckets_[b].end; ++m)
      is_sent_as_is_[to_index(members_[to_index(m)])] =
          encoded_of(static_cast<std::int32_t>(b)) < 0;
  release();
}

void PayloadMemory::make_buckets(const doc::TaskGraph& graph,
                                 const std::vector<const Parameter*>& parameter_at) {
  const auto buckets = graph.buckets();
  buckets_.assign(buckets.begin(), buckets.end());
  members_ = graph.members;
  before_freeing_();
  values_.clear();
  slots_.assign(parameter_at.size(), {});
  bucket_of_.assign(parameter_at.size(), -1);
  for (const doc::Payload& bucket : buckets) {
    const at::Tensor& values =
        values_.emplace_back(zeros(bucket.padded, bucket.dtype, device_of(parameter_at)));
    std::int64_t offset = 0;
    for (std::int32_t m = bucket.begin; m < bucket.end; ++m) {
      const auto position = to_index(members_[to_index(m)]);
      const Parameter& like = *parameter_at[position];
      bucket_of_[position] = static_cast<std::int32_t>(values_.size()) - 1;
      // Not as_strided(): optimizers detach_() gradients in zero_grad(), which autograd refuses for
      // views.
      slots_[position] = at::zeros({0}, values.options());
      slots_[position].set_(values.storage(), offset, like.sizes,
                            order_ == SlotOrder::logical ? c10::contiguous_strides(like.sizes)
                                                         : at::DimVector(like.strides));
      offset += c10::multiply_integers(like.sizes);
    }
    LINERATE_CHECK(offset + bucket.flags == bucket.elements,
                   "a bucket of " + std::to_string(bucket.elements) + " elements holds " +
                       std::to_string(offset));
  }
}

bool PayloadMemory::is_view(std::int32_t position, const at::Tensor& gradient) const {
  const at::Tensor& slot = view(position);
  return gradient.data_ptr() == slot.data_ptr() && gradient.strides() == slot.strides();
}

bool PayloadMemory::fits(std::int32_t position, const at::Tensor& gradient) const {
  return gradient.layout() == at::kStrided && gradient.device() == view(position).device() &&
         at::canCast(gradient.scalar_type(), view(position).scalar_type()) &&
         gradient.sizes() == view(position).sizes();
}

bool PayloadMemory::is_summed_from_afar(std::int32_t position, const at::Tensor& gradient) const {
  const at::Tensor& slot = view(position);
  return reads_pieces_ && is_sent_as_is(position) && gradient.scalar_type() == slot.scalar_type() &&
         gradient.strides() == slot.strides() && !gradient.is_neg();
}

void PayloadMemory::add(std::int32_t position, const at::Tensor& gradient, double scale) {
  at::Tensor& slot = slots_[to_index(position)];
  sources_[to_index(position)] = {};
  if (!gradient.defined()) return static_cast<void>(slot.zero_());
  if (is_view(position, gradient)) {
    if (scale != 1) slot.mul_(scale);
  } else if (is_summed_from_afar(position, gradient)) {
    sources_[to_index(position)] = {gradient, scale};
    pages_.add(gradient.const_data_ptr(), gradient.nbytes());
  } else {
    at::mul_out(slot, gradient, c10::scalar_to_tensor(scale));
  }
}

void PayloadMemory::add_more(std::int32_t position, const at::Tensor& more, double weight) {
  at::Tensor& slot = slots_[to_index(position)];
  const Source source = std::exchange(sources_[to_index(position)], {});
  if (source.gradient.defined())
    at::mul_out(slot, source.gradient, c10::scalar_to_tensor(source.scale));
  slot.add_(more.view(slot.sizes()), weight);
}

void PayloadMemory::note(std::int32_t position, const at::Tensor& gradient,
                         const at::Tensor& scale) {
  const at::Tensor& slot = view(position);
  Filling& filling = fillings_[bucket_of_[to_index(position)]];
  filling.scale = scale;
  if (!gradient.defined()) return filling.zeros.push_back(slot);
  if (is_view(position, gradient)) return;
  const bool is_alike = gradient.scalar_type() == slot.scalar_type() &&
                        gradient.strides() == slot.strides() && !gradient.is_neg();
  if (!is_alike) return static_cast<void>(filling.converts.emplace_back(slot, gradient));
  filling.into.push_back(slot);
  filling.from.push_back(gradient);
}

void PayloadMemory::note_more(std::int32_t position, const at::Tensor& more, double weight) {
  const at::Tensor& slot = view(position);
  fillings_[bucket_of_[to_index(position)]].more.push_back({slot, more.view(slot.sizes()), weight});
}

void PayloadMemory::note_copies(std::int32_t payload, std::vector<at::Tensor> into,
                                std::vector<at::Tensor> from) {
  Filling& filling = fillings_[payload];
  filling.into = std::move(into);
  filling.from = std::move(from);
}

/// Copies what was noted for the payload. The scale multiplies all of the bucket in one pass,
/// because the elements between and after the gradients are zeros.
void PayloadMemory::fill(std::int32_t payload) {
  const auto at = fillings_.find(payload);
  if (at == fillings_.end()) return;
  const Filling filling = std::move(at->second);
  fillings_.erase(at);
  if (!filling.into.empty()) at::_foreach_copy_(filling.into, filling.from);
  for (const auto& [slot, gradient] : filling.converts) slot.copy_(gradient);
  if (!filling.zeros.empty()) at::_foreach_zero_(filling.zeros);
  if (filling.scale.defined()) values(payload).mul_(filling.scale);
  for (const Filling::More& more : filling.more) more.slot.add_(more.values, more.weight);
}

at::Tensor PayloadMemory::is_infinite() const {
  return any_infinite({values_.begin(), values_.begin() + std::ssize(buckets_)});
}

/// By their bits: NaN times 0 would be NaN.
void PayloadMemory::drop_if(const at::Tensor& none) {
  std::map<std::size_t, std::vector<at::Tensor>> by_size;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    by_size[values_[b].element_size()].push_back(values_[b]);
  for (auto& [size, arrays] : by_size) {
    const at::ScalarType bits = size == 2 ? at::kShort : size == 4 ? at::kInt : at::kLong;
    at::Tensor is_kept = at::empty({}, none.options().dtype(bits));
    at::logical_not_out(is_kept, none);
    for (at::Tensor& array : arrays) array = array.view(bits);
    at::_foreach_mul_(arrays, is_kept);
  }
}

std::int32_t PayloadMemory::encoded_of(std::int32_t bucket) const {
  const auto& all = graph_->payloads;
  const auto at = std::ranges::find(all, bucket, &doc::Payload::of);
  return at == all.end() ? -1 : static_cast<std::int32_t>(at - all.begin());
}

at::Tensor& PayloadMemory::encoded_values(std::int32_t bucket) {
  const std::int32_t encoded = encoded_of(bucket);
  LINERATE_CHECK(encoded >= 0, "no payload encodes a bucket that is cast");
  return values_[to_index(encoded)];
}

/// Casts a bucket for the wire. f16 holds at most 65504, so with 4 ranks values are cut off at
/// about 16376, and their sum cannot overflow. Infinities and NaNs stay, so that a scaler sees
/// them. On the host values beyond the limit are rare, so they are looked for first; a device
/// always clamps.
void PayloadMemory::encode(std::int32_t bucket, std::optional<int> ranks, bool may_read) {
  fill(bucket);
  const at::Tensor& values = values_[to_index(bucket)];
  at::Tensor& encoded = encoded_values(bucket);
  if (ranks && encoded.scalar_type() == at::kHalf) {
    const double limit = compress::half_limit(DType::f16, *ranks) / static_cast<double>(*ranks);
    if (!may_read || largest_magnitude(values) > limit)
      values.copy_(at::where(at::isfinite(values), values.clamp(-limit, limit), values));
  }
  encoded.copy_(values);
}

void PayloadMemory::decode(std::int32_t bucket) {
  values_[to_index(bucket)].copy_(encoded_values(bucket));
}

at::Tensor& PayloadMemory::only(doc::Content content) {
  const auto at = std::ranges::find(graph_->payloads, content, &doc::Payload::content);
  LINERATE_CHECK(at != graph_->payloads.end(), graph_->name + " has no such payload");
  return values_[to_index(at - graph_->payloads.begin())];
}

template <typename Visit>
void PayloadMemory::visit_flags(std::size_t count, Visit&& visit) {
  LINERATE_CHECK(!buckets_.empty(), "flags of a step without buckets");
  const doc::Payload& last = buckets_.back();
  const bool ride = last.flags > 0;
  at::Tensor& values = ride ? values_[buckets_.size() - 1] : only(doc::Content::flags);
  const std::int64_t begin = ride ? last.elements - last.flags : 0;
  LINERATE_CHECK(begin + static_cast<std::int64_t>(count) <= values.numel(),
                 "more flags than the step has room for");
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, values.scalar_type(), "flags",
                             [&] { visit(values.mutable_data_ptr<scalar_t>() + begin); });
}

void PayloadMemory::write_flags(const std::vector<float>& flags) {
  visit_flags(flags.size(), [&](auto* first) {
    using Value = std::remove_pointer_t<decltype(first)>;
    std::transform(flags.begin(), flags.end(), first,
                   [](float f) { return static_cast<Value>(f); });
  });
}

void PayloadMemory::read_flags(std::vector<float>& flags) {
  visit_flags(flags.size(), [&](const auto* first) {
    std::transform(first, first + flags.size(), flags.begin(),
                   [](auto value) { return static_cast<float>(value); });
  });
}

bool PayloadMemory::has_sources(std::int32_t payload) const {
  const auto b = to_index(payload);
  if (b >= buckets_.size()) return false;
  return std::any_of(
      members_.begin() + buckets_[b].begin, members_.begin() + buckets_[b].end,
      [&](std::int32_t position) { return sources_[to_index(position)].gradient.defined(); });
}

/// The pieces of a bucket's sum: each gradient in place, then the bucket's flags and padding.
std::vector<comm::Piece> PayloadMemory::pieces(const doc::TaskGraph&, std::int32_t payload) {
  if (!has_sources(payload)) return {};
  const doc::Payload& bucket = buckets_[to_index(payload)];
  const at::Tensor& values = values_[to_index(payload)];
  std::vector<comm::Piece> list;
  std::int64_t offset = 0;
  for (std::int32_t m = bucket.begin; m < bucket.end; ++m) {
    const auto position = to_index(members_[to_index(m)]);
    const Source& source = sources_[position];
    const at::Tensor& from = source.gradient.defined() ? source.gradient : slots_[position];
    list.push_back({{from.const_data_ptr(), {from.numel()}, bucket.dtype}, source.scale});
    offset += from.numel();
  }
  if (offset < values.numel())
    list.push_back({{static_cast<const std::byte*>(values.const_data_ptr()) +
                         offset * static_cast<std::int64_t>(values.element_size()),
                     {values.numel() - offset},
                     bucket.dtype}});
  return list;
}

std::shared_ptr<const void> PayloadMemory::hold(const doc::TaskGraph&, std::int32_t payload) {
  const auto p = to_index(payload);
  auto held = std::make_shared<std::vector<at::Tensor>>(1, values_.at(p));
  if (has_sources(payload))
    for (std::int32_t m = buckets_[p].begin; m < buckets_[p].end; ++m)
      held->push_back(sources_[to_index(members_[to_index(m)])].gradient);
  return held;
}

comm::Buffer PayloadMemory::buffer(const doc::TaskGraph& graph, std::int32_t payload) {
  const at::Tensor& values = values_.at(to_index(payload));
  return {values.data_ptr(), {values.numel()}, graph.payloads[to_index(payload)].dtype};
}

/// An array's largest magnitude is infinite or a NaN if an element is. So one norm an array finds
/// both.
at::Tensor any_infinite(const std::vector<at::Tensor>& arrays) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<at::Tensor> filled;
  for (const at::Tensor& array : arrays)
    if (array.numel() > 0) filled.push_back(array);
  if (filled.empty()) return at::zeros({}, arrays.at(0).options().dtype(at::kBool));
  const std::vector<at::Tensor> largest = at::_foreach_norm(filled, kInfinity);
  return at::stack(largest).lt(kInfinity).all().logical_not();
}

}  // namespace linerate::torch_adapter
