// horovod(threshold=64MiB, cycle=5ms, timer=arrival|clock): fusion by size and time.
//   arrival: as Zhang et al. 2020 read it. A bucket closes when a gradient arrives and 5 ms of
//            backward time, or 64 MiB, have gathered. Both start again from 0 then.
//   clock:   Horovod itself: every cycle takes what got ready since the last one and packs it, in
//            order, into buffers of at most the threshold.
#include <cmath>

#include "linerate/core/index.hpp"
#include "linerate/plan/exchange/fusion.hpp"

namespace linerate::plan {
namespace {

struct HorovodOptions {
  Bytes threshold = MiB(64);
  Seconds cycle{5e-3};
  bool clock = false;
};

class Horovod : public Exchange {
 public:
  Horovod(const HorovodOptions& options, std::optional<DType> wire)
      : Exchange(wire), options_(options) {}

  void fuse(const FusionInput& input, const Fusion& out) const override {
    if (options_.clock)
      by_clock(input.workload, out);
    else
      by_arrival(input.workload, out);
  }

 private:
  // An example: a cycle of 5 ms, and gradients at 2, 4, 6 and 8 ms. The gradient at 6 ms closes a
  // bucket of three, since 6 ms have passed. The next bucket may close from 11 ms on, so the
  // gradient at 8 ms is its first.
  void by_arrival(const doc::Workload& workload, const Fusion& out) const {
    const auto& gradients = workload.gradients;
    const auto count = static_cast<std::int32_t>(gradients.size());
    std::int64_t bytes = 0;
    double closed_at = 0;
    std::int32_t begin = 0;
    for (std::int32_t l = 0; l < count; ++l) {
      const doc::Gradient& g = gradients[to_index(l)];
      bytes += g.bytes();
      const bool full =
          g.ready_s - closed_at >= options_.cycle.value || bytes >= options_.threshold.value;
      if (!full && l + 1 < count && gradients[to_index(l) + 1].dtype == g.dtype) continue;
      append_range(workload, begin, l + 1, out.graph);
      begin = l + 1;
      bytes = 0;
      if (full) closed_at = g.ready_s;
    }
  }

  // The first tick at or after the time a gradient gets ready.
  double tick(double ready_s) const {
    return std::ceil(ready_s / options_.cycle.value) * options_.cycle.value;
  }

  // In the same example the tick at 5 ms takes the gradients of 2 and 4 ms. The tick at 10 ms takes
  // those of 6 and 8 ms. `not_before` has the ticks, at which the buckets may leave.
  void by_clock(const doc::Workload& workload, const Fusion& out) const {
    const auto& gradients = workload.gradients;
    const auto count = static_cast<std::int32_t>(gradients.size());
    for (std::int32_t begin = 0; begin < count;) {
      const doc::Gradient& first = gradients[to_index(begin)];
      const double at = tick(first.ready_s);
      std::int64_t bytes = first.bytes();
      std::int32_t end = begin + 1;
      for (; end < count; ++end) {
        const doc::Gradient& g = gradients[to_index(end)];
        if (g.dtype != first.dtype || tick(g.ready_s) != at ||
            bytes + g.bytes() > options_.threshold.value)
          break;
        bytes += g.bytes();
      }
      append_range(workload, begin, end, out.graph);
      out.not_before.push_back(at);
      begin = end;
    }
  }

  HorovodOptions options_;
};

std::unique_ptr<const Exchange> make_horovod(const doc::Component& component) {
  doc::OptionReader reader(component);
  HorovodOptions options;
  options.threshold = reader.size("threshold", options.threshold);
  options.cycle = reader.time("cycle", options.cycle);
  options.clock = reader.choice("timer", {"arrival", "clock"}) == 1;
  const auto wire = reader.wire();
  reader.finish();
  if (options.clock && !(options.cycle.value > 0))
    reader.refuse("cycle", "more than 0 s with timer=clock");
  return std::make_unique<Horovod>(options, wire);
}

}  // namespace

ExchangeLine strategy_horovod() {
  return {
      "horovod",
      {make_horovod, {.plans_by = PlansBy::times}, {.options = {"threshold=128MiB, cycle=1ms"}}},
      "Buffers of 64 MiB or 5 ms; timer=arrival as Zhang et al. read it, timer=clock as it runs.",
      "Sergeev & Del Balso 2018, Horovod; Zhang et al. 2020 (arXiv 2006.10103)"};
}

}  // namespace linerate::plan
