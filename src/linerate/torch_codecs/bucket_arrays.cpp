#include "linerate/torch_codecs/bucket_arrays.hpp"

#include <algorithm>

#include "linerate/compress/payload.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {

at::Tensor listed(const std::vector<at::Scalar>& numbers, const at::TensorOptions& options) {
  const at::Tensor list = at::zeros({static_cast<std::int64_t>(numbers.size())}, options);
  at::_foreach_add_(list.split(1), numbers);
  return list;
}

at::Tensor spread(const at::Tensor& numbers, const std::vector<std::int64_t>& sizes) {
  std::vector<at::Tensor> all;
  for (std::size_t t = 0; t < sizes.size(); ++t)
    all.push_back(numbers.narrow(0, static_cast<std::int64_t>(t), 1).expand({sizes[t]}));
  return at::cat(all);
}

Padded::Padded(const std::vector<std::int64_t>& sizes, std::int64_t of_multiple)
    : multiple(of_multiple) {
  for (const std::int64_t n : sizes) {
    places.push_back({elements, n});
    elements += room(places.size() - 1);
  }
}
Padded Padded::of(const std::vector<TensorOps::Place>& tensors, std::int64_t multiple) {
  std::vector<std::int64_t> sizes;
  for (const TensorOps::Place& place : tensors) sizes.push_back(place.elements);
  return {sizes, multiple};
}
Padded Padded::of(const TensorOps::Values& values, std::int64_t multiple) {
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& one : values) sizes.push_back(one.numel());
  return {sizes, multiple};
}

std::int64_t Padded::room(std::size_t tensor) const {
  return compress::ceil_div(places[tensor].elements, multiple) * multiple;
}

at::Tensor Padded::array(const std::vector<at::Tensor>& values) const {
  const at::Tensor all = at::zeros({elements}, values.front().options());
  at::_foreach_copy_(parts_of(all), values);
  return all;
}

at::Tensor Padded::array(const at::Tensor& joined) const {
  if (joined.numel() == elements) return joined;
  std::vector<std::int64_t> sizes;
  for (const TensorOps::Place& place : places) sizes.push_back(place.elements);
  return array(joined.split_with_sizes(sizes));
}

at::Tensor Padded::by_row(const at::Tensor& numbers) const {
  std::vector<std::int64_t> rows;
  for (std::size_t t = 0; t < places.size(); ++t) rows.push_back(room(t) / multiple);
  return spread(numbers, rows).unsqueeze(1);
}

/// Rows are full but for the last one of a tensor.
at::Tensor Padded::is_filled(const at::TensorOptions& options) const {
  std::vector<at::Scalar> lengths;
  std::vector<std::int64_t> rows;
  for (std::size_t t = 0; t < places.size(); ++t) {
    const std::int64_t before_last = room(t) - multiple;
    lengths.emplace_back(multiple);
    rows.push_back(before_last / multiple);
    lengths.emplace_back(places[t].elements - before_last);
    rows.push_back(1);
  }
  const auto whole = options.dtype(at::kLong);
  return at::arange(multiple, whole) < spread(listed(lengths, whole), rows).unsqueeze(1);
}

at::Tensor Padded::row_numbers(const at::TensorOptions& options) const {
  std::int64_t most = 0;
  for (std::size_t t = 0; t < places.size(); ++t) most = std::max(most, room(t) / multiple);
  const at::Tensor numbers = at::arange(most, options);
  std::vector<at::Tensor> all;
  for (std::size_t t = 0; t < places.size(); ++t)
    all.push_back(numbers.narrow(0, 0, room(t) / multiple));
  return at::cat(all);
}

at::Tensor Padded::row_tensors(const at::TensorOptions& options) const {
  return by_row(at::arange(static_cast<std::int64_t>(places.size()), options)).view({-1});
}

at::Tensor rounding_bits(const TensorOps::Sending& tensors, const Padded& rows) {
  std::vector<at::Scalar> keys;
  for (const compress::Keys& key : tensors.keys)
    keys.emplace_back(static_cast<std::int64_t>(key.own));
  const auto whole = tensors.values.options().dtype(at::kLong);
  return rounding_blocks(
      random_bits(rows.by_row(listed(keys, whole)).squeeze(1), rows.row_numbers(whole)));
}

}  // namespace linerate::torch_codecs
