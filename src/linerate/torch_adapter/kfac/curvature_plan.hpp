// The places of blocks, factors and directions in a Plan's payloads, and the ranks that compute
// them. Found once for a Plan. Private to torch_adapter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "linerate/doc/plan.hpp"

namespace linerate::torch_adapter {

struct CurvaturePlan {
  /// Elements of a member in a payload of this content.
  using ElementsOf = std::function<std::int64_t(doc::Content content, std::int32_t member)>;
  CurvaturePlan(std::shared_ptr<const doc::Plan> plan, std::size_t blocks, const ElementsOf& sizes);

  /// A member of a payload: a factor, or the block of a direction.
  struct Part {
    std::int32_t payload = -1, member = -1;  // -1: it is not sent
    std::int64_t begin = 0, elements = 0;
    std::int64_t status = 0;  // of an inverse: this far from the payload's end
  };
  struct Variant {
    std::vector<std::vector<Part>> payloads;
    std::vector<Part> inverses, directions;  // by factor, by block
  };
  const Variant& of(const doc::TaskGraph& graph) const;

  std::shared_ptr<const doc::Plan> plan;
  /// By block, the ranks that have its task; empty: all.
  using Ranks = std::vector<std::vector<std::int32_t>>;
  Ranks preconditioning, averaging;
  bool is_late = false;  // gradients arrive under the next forward pass
  std::vector<Variant> variants;

 private:
  void note_ranks(const doc::TaskGraph& graph);
  void note_parts(const doc::TaskGraph& graph, const ElementsOf& sizes);
};

}  // namespace linerate::torch_adapter
