#include "linerate/torch_codecs/bucket_magnitudes.hpp"

#include <algorithm>

#include "linerate/compress/kernel/magnitude.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

constexpr std::int64_t kAllBits = compress::kMagnitude;
constexpr int kMagnitudeBits = 31;
/// Twice as many places are numbers of i32, too.
constexpr std::int64_t kMostShortPlaces = std::int64_t{1} << 30;

}  // namespace

at::ScalarType type_of_places(std::int64_t elements) {
  return elements < kMostShortPlaces ? at::kInt : at::kLong;
}

std::vector<std::int64_t> sizes_of(const Padded& rows) {
  std::vector<std::int64_t> sizes;
  for (const TensorOps::Place& place : rows.places) sizes.push_back(place.elements);
  return sizes;
}

at::Tensor listed(const std::vector<std::int64_t>& numbers, const at::TensorOptions& options) {
  const at::Device device = options.device();
  const at::ScalarType type = options.dtype().toScalarType();
  const at::Tensor list = at::empty({static_cast<std::int64_t>(numbers.size())},
                                    at::TensorOptions(type).pinned_memory(!device.is_cpu()));
  if (type == at::kInt)
    std::transform(numbers.begin(), numbers.end(), list.data_ptr<std::int32_t>(),
                   [](std::int64_t number) { return static_cast<std::int32_t>(number); });
  else
    std::copy(numbers.begin(), numbers.end(), list.data_ptr<std::int64_t>());
  return list.to(device, /*non_blocking=*/true);
}

std::vector<at::Tensor> listed(const std::vector<std::vector<std::int64_t>>& lists,
                               const at::TensorOptions& options) {
  std::vector<std::int64_t> all;
  for (const std::vector<std::int64_t>& list : lists)
    all.insert(all.end(), list.begin(), list.end());
  return listed(all, options).view({static_cast<std::int64_t>(lists.size()), -1}).unbind(0);
}

Magnitudes::Magnitudes(const TensorOps::Values& v)
    : Magnitudes(v, Padded::of(v, kEntryRow).array(v).view({-1, kEntryRow})) {}
Magnitudes::Magnitudes(const TensorOps::Values& v, const at::Tensor& in_rows)
    : rows(Padded::of(v, kEntryRow)),
      x(in_rows),
      row_tensors(rows.row_tensors(x.options().dtype(at::kLong))) {}

at::Tensor Magnitudes::bits() const { return magnitude_bits(x); }

at::Tensor Magnitudes::sum_of_rows(const at::Tensor& of_rows) const {
  std::vector<std::int64_t> sizes = of_rows.sizes().vec();
  sizes.back() = static_cast<std::int64_t>(tensors());
  return at::zeros(sizes, of_rows.options()).index_add_(-1, row_tensors, of_rows);
}

at::Tensor Magnitudes::table(const at::Tensor& of_rows, const at::Scalar& fill) const {
  std::int64_t most = 0;
  for (std::size_t t = 0; t < tensors(); ++t) most = std::max(most, rows.room(t) / kEntryRow);
  const at::Tensor slots = row_tensors * most + rows.row_numbers(row_tensors.options());
  const auto n = static_cast<std::int64_t>(tensors());
  return at::full({of_rows.size(0), n * most}, fill, of_rows.options())
      .index_copy_(1, slots, of_rows)
      .view({of_rows.size(0), n, most});
}

std::vector<std::int64_t> Magnitudes::firsts() const {
  std::vector<std::int64_t> all;
  for (const TensorOps::Place& place : rows.places) all.push_back(place.first);
  return all;
}

/// Of each tensor the key of magnitude 0. Keys ascend where tensors ascend, and where magnitudes
/// of a tensor fall. Those of one tensor are i32.
at::Tensor Magnitudes::last_keys() const {
  const auto n = static_cast<std::int64_t>(tensors());
  if (n == 1) return at::full({1}, kAllBits, x.options().dtype(at::kInt));
  return at::bitwise_left_shift(at::arange(n, row_tensors.options()), kMagnitudeBits) + kAllBits;
}

Magnitudes::Sorted Magnitudes::sorted() const {
  const auto [sorted, order] =
      at::sort((by_row(last_keys()) - bits()).view({-1}), /*stable=*/true, 0, false);
  return {sorted, order};
}

at::Tensor Magnitudes::largest(const std::vector<std::int64_t>& k) const {
  const at::Tensor order = sorted().order;
  std::vector<at::Tensor> taken;
  for (std::size_t t = 0; t < tensors(); ++t)
    taken.push_back(order.narrow(0, rows.places[t].first, k[t]));
  return std::get<0>(at::sort(at::cat(taken)));
}

/// A tensor's elements are in its own rows, in their new order, too.
at::Tensor Magnitudes::largest(const Sorted& sorted, const at::Tensor& k) const {
  const at::Tensor numbers =
      rows.row_numbers(whole()).unsqueeze(1) * kEntryRow + at::arange(kEntryRow, whole());
  const at::Tensor is_taken = (numbers < by_row(k)).view({-1});
  return at::empty_like(is_taken).scatter_(0, sorted.order, is_taken).view(x.sizes());
}

at::Tensor Magnitudes::kth_largest(const Sorted& sorted, const std::vector<std::int64_t>& k) const {
  std::vector<at::Tensor> taken;
  for (std::size_t t = 0; t < tensors(); ++t)
    taken.push_back(sorted.keys.narrow(0, rows.places[t].first + k[t] - 1, 1));
  return (kAllBits - at::bitwise_and(at::cat(taken), kAllBits)).to(at::kInt);
}

at::Tensor Magnitudes::count_from(const Sorted& sorted, const at::Tensor& least) const {
  const at::TensorOptions type = whole();
  return at::searchsorted(sorted.keys, last_keys() - least, type.dtype() == at::kInt,
                          /*right=*/true) -
         listed(firsts(), type);
}

}  // namespace linerate::torch_codecs
