// The state of a run's compressors on one rank, as bytes for a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/compress/state.hpp"
#include "linerate/compress/two_phase.hpp"

namespace linerate::compress {

/// The state of one parameter.
struct CompressedTensorState {
  std::int64_t elements = 0;
  std::vector<float> residual;  // [elements] in gradient units; empty: the method keeps none
  std::string method;           // "topk(density=0.01)": whose the state below is
  SavedState codec;             // of a codec of the whole tensor
  TwoPhaseState two_phase;      // else

  bool operator==(const CompressedTensorState&) const = default;
};

/// Moves all that is owed to `residual`, which has the same meaning for training. That is the part
/// that codecs have not sent, and the part that the owner of this rank's chunk kept. `residual` is
/// empty afterwards if nothing is owed.
void own_all_owed(CompressedTensorState& state, int rank);

struct CompressionState {
  std::int64_t step = 0;  // steps that counted: where random streams and phases go on
  std::map<std::string, CompressedTensorState> tensors;  // by parameter
};

/// Whether anything is owed to any parameter.
bool owes(const CompressionState& state, int rank);

std::string to_bytes(const CompressionState& state);
/// `place` names the file. Throws InputError for what is cut off or foreign.
CompressionState compression_state_from(std::string_view bytes, const std::string& place);

/// The state with which a rank of `ranks` goes on, so that the sum that is owed stays the same in
/// the mean over ranks. With as many ranks as before each rank gets its own state. With another
/// number each rank gets the mean of all residuals. Each field of a codec passes as its Passing
/// says. Fields of the two-phase exchange are joined and cut into the new chunks. A rank that lacks
/// a parameter, or its residual, owes that parameter nothing. `parts` is in the order of the ranks
/// that saved.
CompressionState state_for(int rank, int ranks, std::span<const CompressionState> parts);

}  // namespace linerate::compress
