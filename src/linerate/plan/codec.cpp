// codec(...) is a compressor by its numbers, for questions about one that nobody has written yet.
// It has a ratio, rates of coding and a way to combine payloads, and no code to run.
#include "linerate/plan/codec.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/option_reader.hpp"
#include "linerate/plan/codec_costs.hpp"

namespace linerate::plan {
namespace {

constexpr const char* kOperation = "codec";

const doc::CodecCost& calibrated(const doc::Cluster& cluster, const std::string& name) {
  for (const doc::CodecCost& cost : cluster.codecs)
    if (cost.name == name) return cost;
  throw UsageError(fmt::format(
      "strategy codec: name: the Cluster \"{}\" has no calibrated codec \"{}\"; give encode= and "
      "decode= instead",
      cluster.name, name));
}

}  // namespace

// A calibrated codec's cost is the base, and rates that are given take the place of its own.
CodecModel CodecModel::parse(const doc::Component& component, const doc::Cluster& cluster) {
  doc::OptionReader options(component);
  CodecModel codec;
  if (const std::string name = options.text("name", ""); !name.empty())
    codec.cost = calibrated(cluster, name);
  const double ratio = options.number("ratio").value_or(1);
  if (!(ratio >= 1)) options.refuse("ratio", "at least 1");
  if (const auto rate = options.rate("encode")) codec.cost.encode_bytes_per_s = rate->value;
  if (const auto rate = options.rate("decode")) codec.cost.decode_bytes_per_s = rate->value;
  codec.gather = options.choice("exchange", {"sum", "gather"}) == 1;
  codec.cost.on = static_cast<doc::CodingPlace>(
      options.choice("on", {doc::kCodingPlaceNames.begin(), doc::kCodingPlaceNames.end()},
                     to_index(codec.cost.on)));
  options.finish();
  codec.set_ratio(ratio);
  return codec;
}

// A cast to a narrower wire is priced as the compressor of that name: fp16 or bf16.
CodecModel CodecModel::cast(DType wire, const doc::Cluster& cluster) {
  CodecModel codec;
  codec.is_cast = true;
  codec.operation = {std::string(doc::kCast), {{"to", std::string(name_of(wire))}}};
  const doc::Component component{std::string(cast_name(wire)), {}};
  if (const auto price = price_of(component, cluster.codecs))
    codec.cost = price->cost,
    codec.about_cost = about(*price, fmt::format("wire={}", cast_name(wire)));
  return codec;
}

std::string_view CodecModel::cast_name(DType wire) {
  return wire == DType::f16 ? "fp16" : name_of(wire);
}

// The operation in the Plan says what the codec does to sizes. Costs are no part of it.
void CodecModel::set_ratio(double dense_over_payload) {
  ratio = dense_over_payload;
  operation = {kOperation, {{"ratio", fmt::format("{:g}", ratio)}}};
  if (gather) operation.options.emplace_back("exchange", "gather");
}

}  // namespace linerate::plan
