// bulk: everything in one all-reduce per dtype, after the whole backward pass.
#include <limits>

#include "linerate/doc/option_reader.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/exchange/fusion.hpp"

namespace linerate::plan {
namespace {

class Bulk : public Exchange {
 public:
  explicit Bulk(std::optional<DType> wire) : wire_(wire) {}

  void fuse(const FusionInput& input, const Fusion& out) const override {
    static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int32_t> order;
    ready_order(input.workload, order);
    append_by_limits(input.workload, order, {&kNoLimit, 1}, out.graph);
  }
  Schedule schedule() const override { return Schedule::at_the_end; }
  std::optional<DType> wire() const override { return wire_; }

 private:
  std::optional<DType> wire_;
};

std::unique_ptr<const Exchange> make_bulk(const doc::Component& component) {
  doc::OptionReader options(component);
  const auto wire = options.wire();
  options.finish();
  return std::make_unique<Bulk>(wire);
}

}  // namespace

ExchangeLine strategy_bulk() {
  return {"bulk",
          {make_bulk, {.plans_by = PlansBy::nothing}},
          "One all-reduce of everything, after backward.",
          "the textbook baseline"};
}

}  // namespace linerate::plan
