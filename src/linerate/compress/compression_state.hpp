// What compressors of a run remember on one rank, as bytes for a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace linerate::compress {

/// The state of one parameter.
struct CompressedTensorState {
  std::vector<float> residual;   // [elements] in gradient units; empty: the method keeps none
  std::string method;            // "topk(density=0.01)": whose the codec's state is
  std::vector<std::byte> codec;  // Codec::save()
};

struct CompressionState {
  std::int64_t step = 0;  // steps that counted: where random streams and phases go on
  std::map<std::string, CompressedTensorState> tensors;  // by parameter
};

std::string to_bytes(const CompressionState& state);
/// `place` names the file. Throws InputError for what is cut off or foreign.
CompressionState compression_state_from(std::string_view bytes, const std::string& place);

/// What a rank goes on with. As many ranks as before: its own. Another number: the mean of all
/// residuals on every rank, which leaves what is still to be sent as it was (the mean over ranks of
/// their residuals); the codecs' states are rank 0's. `parts` in the order of the ranks that saved.
CompressionState state_for(int rank, int ranks, std::span<const CompressionState> parts);

}  // namespace linerate::compress
