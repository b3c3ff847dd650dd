// Chunks of the two-phase exchange where tensors lie: those of a bucket are coded in a call, as its
// tensors are.
#include <utility>

#include "linerate/compress/two_phase_exchange.hpp"
#include "linerate/torch_codecs/bucket_magnitudes.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
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
  std::vector<at::Tensor> sizes;
  for (const at::Tensor& room : rooms)
    sizes.push_back(room.narrow(0, 0, kPartSizeBytes).view(at::kInt));
  return sizes;
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
    tensors.of_ranks = call.ranks;
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
TensorOps::Damage TensorOps::average_values(const Arriving& tensors, std::string_view method) {
  Damage damage;
  for (std::size_t t = 0; t < tensors.places.size(); ++t) {
    const TensorArrived& arrived = tensors.arrived[t];
    const auto check = arrived.payloads.size() == 1 ? check_sum : check_gathered;
    check(arrived, 4 * tensors.places[t].elements, method);
    if (!arrived.used.defined()) continue;
    damage = either(damage, (arrived.used != 4 * tensors.places[t].elements).any());
  }
  set_average(tensors, Padded::of(tensors.places, 1), [](const Values& payloads, std::size_t) {
    return at::cat(payloads).view(at::kFloat);
  });
  return damage;
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
