#include "linerate/torch_adapter/kfac/embedding_block.hpp"
#include "linerate/torch_adapter/kfac/kronecker_block.hpp"
#include "linerate/torch_adapter/kfac/unit_wise_block.hpp"

namespace linerate::torch_adapter {

CurvatureBlock::Shape block_shape(const LayerSpec& layer) {
  const at::Tensor& w = layer.weight;
  switch (layer.kind) {
    case LayerKind::linear:
    case LayerKind::conv: {
      const std::int64_t out = w.size(layer.transposed ? 1 : 0);
      return {BlockKind::kronecker, w.numel() / out + (layer.bias.defined() ? 1 : 0),
              out / layer.groups, layer.groups};
    }
    case LayerKind::embedding:
      return {BlockKind::embedding, w.size(0), w.size(1), 1};
    case LayerKind::norm:
      break;
  }
  return {BlockKind::unit_wise, 0, w.numel(), 1};
}

std::unique_ptr<CurvatureBlock> make_block(const LayerSpec& layer, const BlockOptions& options) {
  switch (block_shape(layer).kind) {
    case BlockKind::kronecker:
      return std::make_unique<KroneckerBlock>(layer, options);
    case BlockKind::embedding:
      return std::make_unique<EmbeddingBlock>(layer, options);
    case BlockKind::unit_wise:
      break;
  }
  return std::make_unique<UnitWiseBlock>(layer, options);
}

}  // namespace linerate::torch_adapter
