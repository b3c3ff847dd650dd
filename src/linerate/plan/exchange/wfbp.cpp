// wfbp: Zhang et al. 2017, Poseidon (USENIX ATC): wait-free back-propagation. Every gradient leaves
// by itself, as soon as it is there.
#include "linerate/plan/exchange/fusion.hpp"

namespace linerate::plan {
namespace {

class Wfbp : public Exchange {
 public:
  using Exchange::Exchange;

  void fuse(const FusionInput& input, const Fusion& out) const override {
    const auto count = static_cast<std::int32_t>(input.workload.gradients.size());
    for (std::int32_t p = 0; p < count; ++p) append_range(input.workload, p, p + 1, out.graph);
  }
};

}  // namespace

ExchangeLine strategy_wfbp() {
  return {"wfbp",
          {make_with_wire<Wfbp>,
           {.plans_by = PlansBy::order},
           {.with_codecs = false}},  // in buckets a codec starts less often
          "An all-reduce for each gradient, as soon as it is ready.",
          "Zhang et al. 2017, Poseidon (USENIX ATC)"};
}

}  // namespace linerate::plan
