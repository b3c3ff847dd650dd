// The places of blocks, factors and directions in a Plan's payloads, and the ranks that compute
// them. Found once for a Plan. Private to torch_adapter.
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/replan/run_planner.hpp"
#include "linerate/torch_adapter/kfac/curvature_block.hpp"
#include "linerate/torch_adapter/kfac/preconditioner.hpp"
#include "linerate/torch_adapter/options.hpp"

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

// Derives the times that planners need from when factors were computed. Private to torch_adapter.

/// The forward, factor and inverse times of each layer, from when its factors were computed in a
/// step of so many blocks.
///
/// A layer's forward pass lasts from the end of its factor A to the beginning of the next layer's
/// A. The last layer's lasts until the first gradient of an output. For example A of layer 1 is
/// computed from 0 to 2 ms, and A of layer 2 from 7 to 8 ms. The first G begins at 12 ms. Then the
/// forward passes take 5 and 4 ms.
replan::CurvatureTimes curvature_times(std::span<const FactorSpan> factors, std::size_t blocks,
                                       std::vector<double> inverse_s);

/// The seconds that factors computed in [from_ns, until_ns) took.
double factors_between_s(std::span<const FactorSpan> factors, std::int64_t from_ns,
                         std::int64_t until_ns);

// The costs of K-FAC's parts on this machine, measured in a moment. Private to torch_adapter.

/// Times K-FAC's parts. Inverses (eigendecompositions) are those of a small matrix and of one as
/// large as the largest factor, up to 1024. Products are a symmetric and a plain one of that size.
/// Takes the least of three runs, which all ranks make at once, and the mean over ranks. This is
/// enough to place inverses; for predictions there is `linerate calibrate`. On a device by the
/// device's clock.
doc::SecondOrderCost probe_second_order(comm::Communicator& communicator,
                                        const std::vector<CurvatureBlock::Shape>& shapes,
                                        const at::TensorOptions& where, InverseMethod method);

// The facts about a model's K-FAC layers that planners need. Private to torch_adapter.

/// The strategy's K-FAC, completed by the preconditioner's kinds of layers and inverses; absent if
/// neither has it. Throws UsageError if only one of them has it, or if the strategy shares it in a
/// way that training cannot.
std::optional<plan::Kfac> shared_kfac(doc::Strategy& strategy, Preconditioner* preconditioner);

/// Layer b belongs to block b. Collective: measures what inverses cost.
replan::SecondOrder second_order_of(const Preconditioner& preconditioner,
                                    comm::Communicator& communicator);

}  // namespace linerate::torch_adapter
