#include "linerate/plan/codec.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/plan/option_reader.hpp"

namespace linerate::plan {
namespace {

double seconds(double fixed_s, double bytes_per_s, std::int64_t bytes) {
  return fixed_s + (bytes_per_s > 0 ? static_cast<double>(bytes) / bytes_per_s : 0);
}

const doc::CodecCost& calibrated(const doc::Cluster& cluster, const std::string& name) {
  for (const doc::CodecCost& cost : cluster.codecs)
    if (cost.name == name) return cost;
  throw UsageError(fmt::format(
      "strategy codec: name: the Cluster \"{}\" has no calibrated codec \"{}\"; give encode= and "
      "decode= instead",
      cluster.name, name));
}

}  // namespace

Codec Codec::parse(const doc::Component& component, const doc::Cluster& cluster) {
  OptionReader options(component);
  Codec codec;
  if (const std::string name = options.text("name", ""); !name.empty())
    codec.cost = calibrated(cluster, name);
  codec.ratio = options.number("ratio").value_or(1);
  if (!(codec.ratio >= 1))
    options.fail("ratio", fmt::format("expected at least 1, found {}", codec.ratio));
  if (const auto rate = options.rate("encode")) codec.cost.encode_bytes_per_s = rate->value;
  if (const auto rate = options.rate("decode")) codec.cost.decode_bytes_per_s = rate->value;
  codec.gather = options.choice("exchange", {"sum", "gather"}) == 1;
  codec.resource = options.choice("on", {"codec", "compute"}) == 1 ? doc::Resource::compute
                                                                   : doc::Resource::codec;
  options.finish();
  return codec;
}

double Codec::encode_s(std::int64_t dense_bytes) const {
  return seconds(cost.encode_fixed_s, cost.encode_bytes_per_s, dense_bytes);
}

double Codec::decode_s(std::int64_t dense_bytes) const {
  return seconds(cost.decode_fixed_s, cost.decode_bytes_per_s, dense_bytes);
}

}  // namespace linerate::plan
