// Parts of a bucket's payload as exec/compression lays them, where their sizes are known on the
// device alone: a part is its bytes (u32) and that many of them, padded to whole words.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {

/// Writes parts one after the other to `block`, u8 of whole words, and zeros after the last one.
/// `parts`: u8, of whole words each; `used`: i64[parts], their bytes. Returns the bytes of all with
/// their sizes: i64, of no dimensions.
at::Tensor write_parts(const at::Tensor& block, const std::vector<at::Tensor>& parts,
                       const at::Tensor& used);

struct ReadParts {
  std::vector<TensorArrived> arrived;  // by part, of each block, filled up with zeros
  at::Tensor damaged;                  // bool: whether there was such a one
};
/// What write_parts() wrote on several ranks, to blocks of the same size. A part has at most
/// `bytes` bytes. One that says more, or ends beyond its block, is empty.
ReadParts read_parts(const std::vector<at::Tensor>& blocks, const std::vector<std::int64_t>& bytes,
                     int ranks);

}  // namespace linerate::torch_codecs
