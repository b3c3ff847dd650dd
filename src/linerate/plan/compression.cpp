#include "linerate/plan/compression.hpp"

#include "linerate/compress/registry.hpp"

namespace linerate::plan {
namespace {

constexpr const char* kUnit = "unit";

compress::Shape shape_of(const doc::Gradient& g) { return {g.elements, g.rows}; }

}  // namespace

Compression Compression::parse(const doc::Component& component, const doc::Cluster& cluster) {
  Compression compression{component, compress::make_compressor(component), {}};
  // As calibrated, with its options; else by the name alone.
  for (const std::string& name : {component.name, doc::to_text(component)})
    for (const doc::CodecCost& cost : cluster.codecs)
      if (cost.name == name) compression.cost = cost;
  return compression;
}

compress::BucketLayout Compression::layout_of(const doc::Workload& workload,
                                              const doc::TaskGraph& graph,
                                              const doc::Payload& bucket) const {
  if (bucket.dtype != DType::f32) return {};
  std::vector<compress::Shape> shapes;
  for (std::int32_t m = bucket.begin; m < bucket.end; ++m)
    shapes.push_back(shape_of(
        workload.gradients[static_cast<std::size_t>(graph.members[static_cast<std::size_t>(m)])]));
  return compress::layout_of(*compressor, shapes);
}

WireForm Compression::typical_form(const doc::Workload& workload) const {
  std::int64_t dense = 0, sent = 0;
  bool gathers = false;
  for (const doc::Gradient& g : workload.gradients) {
    dense += g.bytes();
    const auto rounds =
        g.dtype == DType::f32 ? compressor->rounds(shape_of(g)) : std::vector<compress::Round>{};
    if (rounds.empty()) sent += g.bytes();
    for (const compress::Round& round : rounds) {
      sent += round.bytes;
      gathers = gathers || round.combine == compress::Combine::gather;
    }
  }
  WireForm form;
  if (sent > 0 && sent < dense) form.ratio = static_cast<double>(dense) / static_cast<double>(sent);
  form.gather = gathers;
  return form;
}

bool fits_decoupled(const doc::Component& component) {
  const auto compressor = compress::make_compressor(component);
  return compress::is_summable(*compressor) &&
         compressor->rounds({std::int64_t{1} << 20, 1024}).size() == 1;
}

doc::Component scale_in_gradient_units() { return {"scale", {{kUnit, "gradient"}}}; }
bool is_in_gradient_units(const doc::Component& operation) {
  return operation.find(kUnit) != nullptr;
}

}  // namespace linerate::plan
