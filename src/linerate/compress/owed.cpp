// Brings all that a parameter is owed into its residual. A change of the method, a dense step and a
// change of the number of ranks use this. A residual is the one form that each method can go on
// with.
#include <algorithm>
#include <cstring>

#include "linerate/compress/compression_state.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

bool are_zeros(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

/// Adds `times` the field's values to a part of the residual, and sets the field to zero. A field
/// of another size than the part has no meaning for the tensor, so it stays.
void move(SavedField& field, float times, const Chunk& part, CompressedTensorState& to) {
  std::vector<float> values(field.bytes.size() / sizeof(float));
  if (values.size() != to_index(part.elements) || values.empty()) return;
  std::memcpy(values.data(), field.bytes.data(), field.bytes.size());
  if (are_zeros(values)) return;
  to.residual.resize(to_index(to.elements));
  for (std::size_t i = 0; i < values.size(); ++i)
    to.residual[to_index(part.first) + i] += times * values[i];
  std::fill(field.bytes.begin(), field.bytes.end(), std::byte{0});
}

void move_owed(SavedState& codec, const Chunk& part, CompressedTensorState& to) {
  for (SavedField& field : codec)
    if (field.passing == Passing::owed) move(field, 1, part, to);
}

}  // namespace

/// A worker's fields are in units of the rank's own gradient, so they are added as they are. The
/// owner's residual is in units of the mean of all ranks. So it is multiplied by the number of
/// ranks. Example: the owner among three ranks has .2 of an element's mean left. As part of its own
/// gradient that must be .6, because the mean divides the rank's share by 3.
void own_all_owed(CompressedTensorState& state, int rank) {
  move_owed(state.codec, {0, state.elements}, state);
  const std::size_t ranks = state.two_phase.workers.size();
  if (to_index(rank) < ranks) {
    const std::vector<Chunk> chunks = cut_into_chunks(state.elements, static_cast<int>(ranks));
    for (std::size_t c = 0; c < ranks; ++c) move_owed(state.two_phase.workers[c], chunks[c], state);
    for (SavedField& field : state.two_phase.server)
      if (field.name == kServerResidual)
        move(field, static_cast<float>(ranks), chunks[to_index(rank)], state);
  }
  if (are_zeros(state.residual)) state.residual.clear();
}

bool owes(const CompressionState& state, int rank) {
  return std::any_of(state.tensors.begin(), state.tensors.end(), [&](const auto& entry) {
    CompressedTensorState tensor = entry.second;
    own_all_owed(tensor, rank);
    return !tensor.residual.empty();
  });
}

}  // namespace linerate::compress
