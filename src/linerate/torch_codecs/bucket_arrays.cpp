#include "linerate/torch_codecs/bucket_arrays.hpp"

#include <algorithm>
#include <utility>

#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

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

std::int64_t Padded::room(std::size_t tensor) const {
  return compress::ceil_div(places[tensor].elements, multiple) * multiple;
}

at::Tensor Padded::array(const std::vector<at::Tensor>& values) const {
  const at::Tensor all = at::zeros({elements}, values.front().options());
  at::_foreach_copy_(parts_of(all), values);
  return all;
}

at::Tensor Padded::array(const at::Tensor& joined) const {
  return joined.numel() == elements ? joined : array(joined.split_with_sizes(sizes()));
}

std::vector<at::Tensor> Padded::codes_of_each(const at::Tensor& packed, int bits) const {
  return mapped(places, [&](const TensorOps::Place& place) {
    return packed.narrow(0, place.first * bits / 8,
                         compress::pad4(compress::ceil_div(place.elements * bits, 8)));
  });
}

std::vector<std::int64_t> Padded::row_counts() const {
  return mapped(sizes(), [&](std::int64_t n) { return compress::ceil_div(n, multiple); });
}
std::int64_t Padded::most_rows() const {
  const std::vector<std::int64_t> rows = row_counts();
  return *std::max_element(rows.begin(), rows.end());
}

at::Tensor Padded::by_row(const at::Tensor& numbers) const {
  return spread(numbers, row_counts()).unsqueeze(1);
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
  const at::Tensor numbers = at::arange(most_rows(), options);
  return at::cat(mapped(row_counts(), [&](std::int64_t n) { return numbers.narrow(0, 0, n); }));
}

at::Tensor Padded::row_tensors(const at::TensorOptions& options) const {
  return by_row(at::arange(std::ssize(places), options)).view({-1});
}

std::vector<at::Tensor> sections(const std::vector<at::Tensor>& payloads,
                                 const std::vector<std::int64_t>& begins,
                                 const std::vector<at::Tensor>& like) {
  std::vector<at::Tensor> all;
  for (std::size_t t = 0; t < payloads.size(); ++t)
    all.push_back(payloads[t].narrow(0, begins[t], like[t].numel()));
  return all;
}

at::Tensor rounding_bits(const TensorOps::Sending& tensors, const Padded& rows) {
  const auto keys = mapped(tensors.keys, [](const compress::Keys& key) {
    return at::Scalar(static_cast<std::int64_t>(key.own));
  });
  const auto whole = tensors.values.options().dtype(at::kLong);
  return rounding_blocks(
      random_bits(rows.by_row(listed(keys, whole)).squeeze(1), rows.row_numbers(whole)));
}

namespace {

constexpr std::int64_t kAllBits = compress::kMagnitude;
constexpr int kMagnitudeBits = 31;
/// Twice as many places are numbers of i32, too.
constexpr std::int64_t kMostShortPlaces = std::int64_t{1} << 30;

}  // namespace

at::ScalarType type_of_places(std::int64_t elements) {
  return elements < kMostShortPlaces ? at::kInt : at::kLong;
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
  const std::int64_t most = rows.most_rows(), n = std::ssize(rows.places);
  const at::Tensor slots = row_tensors * most + rows.row_numbers(row_tensors.options());
  return at::full({of_rows.size(0), n * most}, fill, of_rows.options())
      .index_copy_(1, slots, of_rows)
      .view({of_rows.size(0), n, most});
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
         listed(rows.firsts(), type);
}

// Chunks of the two-phase exchange where tensors lie: those of a bucket are coded in a call, as its
// tensors are.

namespace {

using compress::ChunkCall;
using compress::kPartSizeBytes;

TensorCodec* codec_of(const ChunkCall::Item& item) {
  return static_cast<TensorCodec*>(item.coder->codec.get());
}

/// The payload in its room: after its size, if that is told.
at::Tensor payload_in(const ChunkCall& call, const ChunkCall::Item& item, const at::Tensor& room) {
  return room.narrow(0, call.has_sizes ? kPartSizeBytes : 0, item.bytes);
}
std::vector<at::Tensor> sizes_in(const std::vector<at::Tensor>& rooms) {
  return mapped(rooms, [](const at::Tensor& room) {
    return room.narrow(0, 0, kPartSizeBytes).view(at::kInt);
  });
}

/// The items that travel dense, or the others: their codecs are of two classes.
std::vector<std::size_t> those_of(const ChunkCall& call, bool are_dense) {
  std::vector<std::size_t> those;
  for (std::size_t i = 0; i < call.items.size(); ++i)
    if (call.items[i].coder->is_dense == are_dense) those.push_back(i);
  return those;
}

}  // namespace

void TensorOps::send_chunks(const ChunkCall& call, const Arrays& arrays,
                            const std::vector<Bytes>& rooms) {
  for (const bool is_dense : {false, true}) {
    const std::vector<std::size_t> those = those_of(call, is_dense);
    if (those.empty()) continue;
    Sending tensors{arrays.values, arrays.residual, arrays.residual, {}, {}, {}, {}, {}};
    tensors.ranks = call.ranks;
    tensors.phase = call.phase;
    std::vector<Bytes> taken;
    std::vector<std::int64_t> bytes;
    for (const std::size_t i : those) {
      const ChunkCall::Item& item = call.items[i];
      tensors.places.push_back({item.in_bucket, item.coder->elements});
      tensors.payloads.push_back(payload_in(call, item, rooms[i]));
      tensors.keys.push_back(item.keys);
      tensors.codecs.push_back(codec_of(item));
      taken.push_back(rooms[i]);
      bytes.push_back(item.bytes);
    }
    if (call.has_sizes) tensors.used = listed(bytes, arrays.values.options().dtype(at::kLong));
    tensors.codecs.front()->encode_bucket(0, tensors);
    if (call.has_sizes) at::_foreach_copy_(sizes_in(taken), tensors.used.to(at::kInt).split(1));
  }
}

TensorOps::Damage TensorOps::average_chunks(const ChunkCall& call,
                                            const std::vector<std::vector<Bytes>>& arrived,
                                            const Arrays& means) {
  Damage damage;
  for (const bool is_dense : {false, true}) {
    const std::vector<std::size_t> those = those_of(call, is_dense);
    if (those.empty()) continue;
    Arriving tensors{means.values, {}, {}, {}};
    for (const std::size_t i : those) {
      const ChunkCall::Item& item = call.items[i];
      TensorArrived& one = tensors.arrived.emplace_back(TensorArrived{{}, call.ranks, {}});
      for (const at::Tensor& room : arrived[i])
        one.payloads.push_back(payload_in(call, item, room));
      if (call.has_sizes) one.used = unsigned_of(at::cat(sizes_in(arrived[i])));
      tensors.places.push_back({item.in_bucket, item.coder->elements});
      tensors.codecs.push_back(codec_of(item));
    }
    tensors.codecs.front()->decode_bucket(0, tensors);
    damage = either(damage, tensors.codecs.front()->damaged());
  }
  return damage;
}

/// A payload of each rank, or their sum.
void TensorOps::receive(const Arriving& tensors, const compress::DenseFormat&) {
  for (std::size_t t = 0; t < tensors.places.size(); ++t) {
    const TensorArrived& arrived = tensors.arrived[t];
    const auto check = arrived.payloads.size() == 1 ? check_sum : check_gathered;
    check(arrived, 4 * tensors.places[t].elements, "dense");
    if (arrived.used.defined())
      tensors.note_damage((arrived.used != 4 * tensors.places[t].elements).any());
  }
  set_average(tensors, Padded::of(tensors.places, 1), [](const Values& payloads, std::size_t) {
    return at::cat(payloads).view(at::kFloat);
  });
}

TensorOps::Arrays TensorOps::own_chunks(const std::vector<compress::TwoPhase*>& owners) {
  std::vector<at::Tensor> owed;
  std::int64_t elements = 0;
  for (compress::TwoPhase* const one : owners) {
    owed.push_back(static_cast<KeptTensor&>(one->owed()).now());
    elements += one->owner().elements;
  }
  const at::Tensor values = at::empty({elements}, owed.front().options());
  return {values, owed.front().numel() > 0 ? at::cat(owed) : at::Tensor()};
}

/// What is owed by all lies in one array from then on.
void TensorOps::keep_owed(const std::vector<compress::TwoPhase*>& owners, const Arrays& arrays) {
  if (!arrays.residual.defined()) return;
  std::int64_t first = 0;
  for (compress::TwoPhase* const one : owners) {
    const std::int64_t elements = one->owner().elements;
    static_cast<KeptTensor&>(one->owed()).write(arrays.residual.narrow(0, first, elements));
    first += elements;
  }
}

}  // namespace linerate::torch_codecs
