// A compressor of one's own: one class that says what travels, one that encodes and decodes, one
// line that names it. Strategies then take it as any other: "ddp+head(share=0.5)".
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/plan/make_plan.hpp"

using namespace linerate;
using compress::Arrived;
using compress::Input;
using compress::Round;
using compress::Shape;

namespace {

/// Sends the first elements of a tensor and keeps the others for later. (Not a method to use.)
class HeadCodec : public compress::Codec {
 public:
  explicit HeadCodec(std::size_t sent) : sent_(sent) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    for (std::size_t i = 0; i < input.gradient.size(); ++i) {
      const float v = input.gradient[i] + (input.residual.empty() ? 0 : input.residual[i]);
      if (i < sent_) std::memcpy(payload.data() + 4 * i, &v, 4);
      if (!input.residual.empty()) input.residual[i] = i < sent_ ? 0 : v;
    }
    return 4 * sent_;
  }
  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    if (arrived.payloads.front().size() != 4 * sent_) throw InputError("head: a cut payload");
    std::fill(mean.begin(), mean.end(), 0.0f);
    for (std::size_t i = 0; i < sent_; ++i) {
      float sum = 0;
      std::memcpy(&sum, arrived.payloads.front().data() + 4 * i, 4);
      mean[i] = sum / static_cast<float>(arrived.ranks);
    }
  }

 private:
  std::size_t sent_;
};

class Head : public compress::Compressor {
 public:
  explicit Head(double share) : share_(share) {}

  std::vector<Round> rounds(const Shape& shape) const override {
    const std::int64_t n = sent(shape);
    if (n == shape.elements) return {};
    return {{.combine = compress::Combine::sum, .dtype = DType::f32, .bytes = 4 * n}};
  }
  std::unique_ptr<compress::Codec> codec(const Shape& shape) const override {
    return std::make_unique<HeadCodec>(static_cast<std::size_t>(sent(shape)));
  }
  compress::Residual residual() const override { return compress::Residual::needed; }

 private:
  std::int64_t sent(const Shape& shape) const {
    const auto n = static_cast<std::int64_t>(share_ * static_cast<double>(shape.elements));
    return std::clamp<std::int64_t>(n, 1, shape.elements);
  }
  double share_;
};

std::unique_ptr<const compress::Compressor> make_head(doc::OptionReader& options) {
  const double share = options.number("share").value_or(0.5);
  if (!(share > 0 && share <= 1)) options.fail("share", "expected a number above 0, at most 1");
  return std::make_unique<Head>(share);
}

}  // namespace

int main() {
  compress::register_compressor({"head", make_head, "The first elements of each tensor.", "here"});
  doc::Workload workload;
  workload.name = "one layer";
  workload.gradients = {{.name = "weight", .elements = 1 << 20, .ready_s = 1e-3}};
  workload.backward_s = 1e-3;
  doc::Cluster cluster;
  cluster.network = {.bandwidth_bytes_per_s = 1.25e9, .latency_s = 20e-6};
  const doc::Plan plan =
      plan::make_plan(workload, cluster, doc::parse_strategy("ddp+head(share=0.25)"), 2);
  for (const doc::Task& task : plan.variants.back().tasks)
    if (task.kind == doc::TaskKind::all_reduce)
      std::printf("all-reduce of %lld bytes, of a gradient of %lld\n",
                  static_cast<long long>(task.bytes),
                  static_cast<long long>(workload.gradient_bytes()));
}
