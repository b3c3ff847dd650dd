// bulk: everything in one all-reduce per dtype, after the whole backward pass.
#include <limits>

#include "linerate/plan/exchange/fusion.hpp"

namespace linerate::plan {
namespace {

class Bulk : public Exchange {
 public:
  using Exchange::Exchange;

  void fuse(const FusionInput& input, const Fusion& out) const override {
    static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
    append_by_limits(input.workload, ready_order(input.workload), {&kNoLimit, 1}, out.graph);
  }
  Schedule schedule() const override { return Schedule::at_the_end; }
};

}  // namespace

ExchangeLine strategy_bulk() {
  return {"bulk",
          {make_with_wire<Bulk>, {.plans_by = PlansBy::nothing}},
          "One all-reduce of everything, after backward.",
          "the textbook baseline"};
}

}  // namespace linerate::plan
