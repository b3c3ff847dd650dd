// The Kronecker factors of a network's layers.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/doc/block.hpp"
#include "linerate/models/description.hpp"

namespace linerate::models {

/// One block for each node with parameters, in their order, so that Block::layer counts the nodes
/// with parameters; an embedding that a later projection is tied to has none. Rows are the samples
/// times the positions that share the weight: pixels of a convolution's output, tokens. `batch` 0:
/// rows are unknown.
std::vector<doc::Block> blocks_of(const Description& model, std::int64_t batch);

}  // namespace linerate::models
