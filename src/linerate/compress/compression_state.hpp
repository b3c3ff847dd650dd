// What compressors of a run remember on one rank, as bytes for a checkpoint.
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

/// Moves all that is owed to `residual`, which means the same: what codecs had not sent, and what
/// the owner of this rank's chunk kept. Nothing is owed: it is empty.
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

/// What a rank goes on with, so that what is owed (the mean over ranks) stays what it was. As many
/// ranks as before: its own. Another number: the mean of all residuals, each field of a codec as
/// its Passing says, the two-phase exchange's after its chunks are cut anew. A rank that does not
/// know a parameter, or has no residual of it, owes it nothing. `parts` in the order of the ranks
/// that saved.
CompressionState state_for(int rank, int ranks, std::span<const CompressionState> parts);

}  // namespace linerate::compress
