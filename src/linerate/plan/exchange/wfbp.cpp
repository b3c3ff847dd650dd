// wfbp: Zhang et al. 2017, Poseidon (USENIX ATC): wait-free back-propagation. Every gradient leaves
// by itself, as soon as it is there.
#include "linerate/doc/option_reader.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/exchange/fusion.hpp"

namespace linerate::plan {
namespace {

class Wfbp : public Exchange {
 public:
  explicit Wfbp(std::optional<DType> wire) : wire_(wire) {}

  void fuse(const FusionInput& input, const Fusion& out) const override {
    const auto count = static_cast<std::int32_t>(input.workload.gradients.size());
    for (std::int32_t p = 0; p < count; ++p) append_range(input.workload, p, p + 1, out.graph);
  }
  std::optional<DType> wire() const override { return wire_; }

 private:
  std::optional<DType> wire_;
};

std::unique_ptr<const Exchange> make_wfbp(const doc::Component& component) {
  doc::OptionReader options(component);
  const auto wire = options.wire();
  options.finish();
  return std::make_unique<Wfbp>(wire);
}

}  // namespace

ExchangeLine strategy_wfbp() {
  return {"wfbp",
          {make_wfbp,
           {.plans_by = PlansBy::order},
           {.with_codecs = false}},  // in buckets a codec starts less often
          "An all-reduce for each gradient, as soon as it is ready.",
          "Zhang et al. 2017, Poseidon (USENIX ATC)"};
}

}  // namespace linerate::plan
