// mg-wfbp: the merge rule of Shi, Chu & Li 2019 (MG-WFBP, INFOCOM) as their code has it. A gradient
// joins the next one when that gets ready before this transfer would end. Besides, it must be ready
// before this transfer would start, or waiting for it must cost less than one start-up.
#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/plan/exchange/fusion.hpp"

namespace linerate::plan {
namespace {

class MgWfbp : public Exchange {
 public:
  using Exchange::Exchange;

  // `start` is when the open bucket's transfer would start. An example with 2 ms + 1 ms/MiB and
  // gradients of 1 MiB at 1, 2 and 6 ms. The first transfer would take from 1 to 4 ms. The second
  // gradient is ready at 2 ms, before that end, and waiting 1 ms costs less than a start-up of 2
  // ms: they merge. Both would then travel from 2 to 6 ms. The third gradient is ready at 6 ms,
  // which is not before that end, so it travels by itself.
  void fuse(const FusionInput& input, const Fusion& out) const override {
    const auto& gradients = input.workload.gradients;
    const auto count = static_cast<std::int32_t>(gradients.size());
    const auto bytes_of = [&](std::int32_t l) {
      const doc::Gradient& g = gradients[to_index(l)];
      return static_cast<double>(input.form.bytes(g.elements, g.dtype, input.ranks));
    };
    // The authors' cost is a line. Other costs become one, through the smallest gradient and the
    // sum of all.
    double total = 0, least = bytes_of(0);
    for (std::int32_t l = 0; l < count; ++l) {
      total += bytes_of(l);
      least = std::min(least, bytes_of(l));
    }
    const cost::CostCurve curve = exchange_curve(input);
    const cost::Line cost = line_through(least, curve.seconds(least), total, curve.seconds(total));
    double start = gradients.front().ready_s;
    double bytes = bytes_of(0);
    std::int32_t begin = 0;
    for (std::int32_t l = 0; l + 1 < count; ++l) {
      const doc::Gradient& here = gradients[to_index(l)];
      const doc::Gradient& next = gradients[to_index(l) + 1];
      const double transfer = cost(bytes);
      const bool merge = here.dtype == next.dtype && next.ready_s < start + transfer &&
                         (start > next.ready_s || next.ready_s - start < cost.alpha_s);
      if (merge) {
        start = std::max(start, next.ready_s);
        bytes += bytes_of(l + 1);
        continue;
      }
      append_range(input.workload, begin, l + 1, out.graph);
      begin = l + 1;
      start = std::max(start + transfer, next.ready_s);
      bytes = bytes_of(l + 1);
    }
    append_range(input.workload, begin, count, out.graph);
  }
};

}  // namespace

ExchangeLine strategy_mg_wfbp() {
  return {"mg-wfbp",
          {make_with_wire<MgWfbp>,
           {.plans_by = PlansBy::cost},
           {.with_codecs = false}},  // optimal solves the same problem exactly
          "Merges a gradient into the next if waiting costs less than a start-up (greedy).",
          "Shi, Chu & Li 2019, MG-WFBP (INFOCOM)"};
}

}  // namespace linerate::plan
