// ddp(bucket=25MiB, first=1MiB, small=first|last, wire=...): PyTorch DistributedDataParallel's
// buckets. bucket_cap_mb=10 is PyTorch's own option: 10 MiB for the first bucket, too. First step:
// planned in reverse registration order; afterwards in the ready order seen.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/plan/exchange/fusion.hpp"

namespace linerate::plan {
namespace {

constexpr double kMostCapMb = 1e6;

struct DdpOptions {
  Bytes bucket = MiB(25);
  Bytes first = MiB(1);
  bool small_last = false;  // find_unused_parameters=True, DDP_SET_LAST_BUCKET_CAP=1
};

class Ddp : public Exchange {
 public:
  Ddp(const DdpOptions& options, std::optional<DType> wire)
      : Exchange(wire), options_(options), limits_{options.first.value, options.bucket.value} {}

  // With the small bucket last, PyTorch runs the rule from the last gradient and reverses the list
  // of buckets. So the first bucket sent is the remainder, and the last one has the small limit.
  void fuse(const FusionInput& input, const Fusion& out) const override {
    std::vector<std::int32_t> order =
        input.first_step ? reverse_registration_order(input.workload) : ready_order(input.workload);
    if (options_.small_last) std::ranges::reverse(order);
    append_by_limits(input.workload, order, limits_, out.graph);
    if (options_.small_last) std::ranges::reverse(out.graph.payloads);
  }
  std::optional<std::int64_t> bucket_bytes() const override { return options_.bucket.value; }

 private:
  DdpOptions options_;
  std::vector<std::int64_t> limits_;
};

std::unique_ptr<const Exchange> make_ddp(const doc::Component& component) {
  doc::OptionReader reader(component);
  DdpOptions options;
  if (const auto cap = reader.number("bucket_cap_mb")) {
    for (const char* other : {"bucket", "first"})
      if (component.find(other))
        reader.fail("bucket_cap_mb",
                    fmt::format("sets {} itself; leave one of the two out", other));
    if (!(*cap > 0 && *cap <= kMostCapMb))
      reader.refuse("bucket_cap_mb", fmt::format("more than 0 and at most {:g} (MiB)", kMostCapMb));
    options.bucket = options.first =
        Bytes{std::max<std::int64_t>(1, std::llround(*cap * (1 << 20)))};
  }
  options.bucket = reader.size("bucket", options.bucket);
  options.first = reader.size("first", options.first);
  options.small_last = reader.choice("small", {"first", "last"}) == 1;
  const auto wire = reader.wire();
  reader.finish();
  if (options.bucket.value <= 0) reader.refuse("bucket", "more than 0 bytes");
  if (options.first.value <= 0) reader.refuse("first", "more than 0 bytes");
  return std::make_unique<Ddp>(options, wire);
}

}  // namespace

ExchangeLine strategy_ddp() {
  return {
      "ddp",
      {make_ddp,
       {.plans_by = PlansBy::order},
       {.options = {"bucket=5MiB", "bucket=10MiB", "bucket=50MiB", "bucket=100MiB", "wire=fp16"}}},
      "Buckets of 25 MiB in ready order (the first 1 MiB), sent while backward goes on.",
      "Li et al. 2020, PyTorch Distributed (VLDB)"};
}

}  // namespace linerate::plan
