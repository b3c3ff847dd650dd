// Chunks of the two-phase exchange on the host, coded one after the other. A chunk is a part of its
// tensor's arrays, so nothing is copied.
#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/keep_denormals.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/two_phase_exchange.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

/// The chunk's part of a tensor's array. Without a residual the array is empty, and so is the part.
std::span<float> part_of_chunk(std::span<float> tensor, const ChunkCall::Item& item) {
  return tensor.empty() ? tensor : HostOps::part(tensor, item.in_tensor, item.coder->elements);
}

}  // namespace

void HostOps::send_chunks(const ChunkCall& call, const Arrays& arrays,
                          const std::vector<Bytes>& rooms) {
  const KeepDenormals keep;
  for (std::size_t i = 0; i < call.items.size(); ++i) {
    const ChunkCall::Item& item = call.items[i];
    const Input input{part_of_chunk(arrays.values[item.tensor], item),
                      part_of_chunk(arrays.residuals[item.tensor], item), item.keys, call.ranks,
                      call.phase};
    put_part(rooms[i], 0, call.has_sizes, [&](std::span<std::byte> bytes) {
      const std::span<std::byte> room = bytes.first(to_index(item.bytes));
      const std::size_t sent = item.coder->codec->encode(0, input, room);
      check_sent(sent, room.size(), item.is_bound,
                 {item.method, item.name, 0, item.coder->elements});
      return sent;
    });
  }
}

HostOps::Damage HostOps::average_chunks(const ChunkCall& call,
                                        const std::vector<std::vector<Bytes>>& arrived,
                                        const Arrays& means) {
  const KeepDenormals keep;
  for (std::size_t i = 0; i < call.items.size(); ++i) {
    const ChunkCall::Item& item = call.items[i];
    std::vector<std::span<const std::byte>> payloads;
    for (const Bytes& room : arrived[i]) {
      std::size_t at = 0;
      payloads.push_back(get_part(room, at, call.has_sizes, to_index(item.bytes), item.name));
    }
    item.coder->codec->decode(0, {payloads, call.ranks},
                              part_of_chunk(means.values[item.tensor], item));
  }
  return {};
}

/// The arrays for the means of own chunks. The residuals are the kept fields themselves, so
/// keep_owed() has nothing to do.
HostOps::Arrays HostOps::own_chunks(const std::vector<TwoPhase*>& owners) {
  Arrays all;
  for (TwoPhase* const one : owners) {
    one->room().resize(to_index(one->owner().elements));
    all.values.emplace_back(one->room());
    all.residuals.emplace_back(static_cast<KeptValues&>(one->owed()).changed());
  }
  return all;
}

}  // namespace linerate::compress
