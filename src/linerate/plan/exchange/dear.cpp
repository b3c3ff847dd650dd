// dear(bucket=25MiB | layers=4): Zhang et al. 2023, DeAR (arXiv 2302.12445). The all-reduce is
// split: reduce-scatter under backward, all-gather under the next forward pass.
#include <algorithm>

#include "linerate/plan/exchange.hpp"
#include "linerate/plan/exchange/fusion.hpp"
#include "linerate/plan/option_reader.hpp"

namespace linerate::plan {
namespace {

class Dear : public Exchange {
 public:
  Dear(std::int64_t bucket_bytes, std::int64_t layers, std::optional<DType> wire)
      : bucket_bytes_(bucket_bytes), layers_(layers), wire_(wire) {}

  void fuse(const FusionInput& input, const Fusion& out) const override {
    if (layers_ > 0) return by_layers(input.workload, out.graph);
    std::vector<std::int32_t> order;
    ready_order(input.workload, order);
    append_by_limits(input.workload, order, {&bucket_bytes_, 1}, out.graph);
  }
  Schedule schedule() const override { return Schedule::decoupled; }
  std::optional<DType> wire() const override { return wire_; }

 private:
  // Neighbouring layers together; a gradient of unknown layer counts as a layer.
  void by_layers(const doc::Workload& workload, doc::TaskGraph& graph) const {
    const auto& gradients = workload.gradients;
    std::int64_t layers = 1;
    std::size_t begin = 0;
    for (std::size_t l = 1; l <= gradients.size(); ++l) {
      const bool end = l == gradients.size();
      const bool new_dtype = !end && gradients[l].dtype != gradients[l - 1].dtype;
      const bool new_layer =
          !end && (gradients[l].layer < 0 || gradients[l].layer != gradients[l - 1].layer);
      if (!end && !new_dtype && (!new_layer || layers < layers_)) {
        layers += new_layer;
        continue;
      }
      append_range(workload, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(l), graph);
      begin = l;
      layers = 1;
    }
  }

  std::int64_t bucket_bytes_, layers_;
  std::optional<DType> wire_;
};

}  // namespace

std::unique_ptr<const Exchange> make_dear(const doc::Component& component) {
  OptionReader options(component);
  const Bytes bucket = options.size("bucket", MiB(25));
  const std::int64_t layers = options.integer("layers", 0);
  const auto wire = options.wire();
  options.finish();
  if (bucket.value <= 0) options.fail("bucket", "expected more than 0 bytes");
  if (component.find("layers") && layers < 1) options.fail("layers", "expected at least 1");
  if (component.find("layers") && component.find("bucket"))
    options.fail("layers", "give bucket or layers, not both");
  return std::make_unique<Dear>(bucket.value, layers, wire);
}

}  // namespace linerate::plan
