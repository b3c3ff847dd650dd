// codec(...) is a compressor by its numbers, for questions about one that nobody has written yet.
// It has a ratio, rates of coding and a way to combine payloads, and no code to run.
#include "linerate/plan/codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "linerate/compress/coding_step.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/fields.hpp"
#include "linerate/doc/option_reader.hpp"

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

// Prices of coding. codec_costs.json describes a codec by its work: kernel launches, passes over
// the bytes, products of matrices. Or it has a time that was measured for so many bytes and
// tensors. It describes a device by its times for launches, bytes and products. price() multiplies
// the two, so one row serves for every device. price_of() finds the row for a compressor of a
// strategy.

constexpr std::string_view kAnyCompressor = "any";
constexpr std::string_view kPowersgd = "powersgd", kAcpsgd = "acpsgd";

/// How far apart two settings of one compressor are, as the sum of the logarithms of their numbers'
/// ratios. topk(density=0.01) is as far from density 0.02 as from 0.005. It is infinite for
/// different compressors.
double distance_of(const doc::Component& a, const doc::Component& b) {
  if (a.name != b.name) return INFINITY;
  double distance = 0;
  for (const auto& [key, value] : a.options) {
    const std::string* const other = b.find(key);
    if (other == nullptr || *other == value) continue;
    try {
      distance += std::abs(std::log(parse_number(value) / parse_number(*other)));
    } catch (const UsageError&) {
      distance += 1;  // a word
    }
  }
  return std::isnan(distance) ? INFINITY : distance;
}

// The first cost with one of these names, among the Cluster's own or among the others.
const doc::CodecCost* find_cost(const std::vector<doc::CodecCost>& codecs, bool own,
                                const std::vector<std::string>& names) {
  const auto found = std::ranges::find_if(codecs, [&](const doc::CodecCost& c) {
    return c.is_own() == own && std::ranges::count(names, c.name) > 0;
  });
  return found == codecs.end() ? nullptr : &*found;
}

// The known cost of the same compressor whose settings are nearest; null if none is known.
const doc::CodecCost* nearest_known(const std::vector<doc::CodecCost>& codecs,
                                    const doc::Component& component) {
  const doc::CodecCost* nearest = nullptr;
  double least = INFINITY;
  for (const doc::CodecCost& cost : codecs) {
    if (cost.is_own()) continue;
    const double distance = distance_of(component, doc::parse_component(cost.name));
    if (distance < least) least = distance, nearest = &cost;
  }
  return nearest;
}

/// PowerSGD multiplies by both factors in a step, ACP-SGD by one, and makes as many orthonormal.
doc::CodecCost one_factor_of(doc::CodecCost powersgd) {
  powersgd.name.replace(0, kPowersgd.size(), kAcpsgd);
  powersgd.encode_fixed_s /= 2, powersgd.decode_fixed_s /= 2;
  powersgd.encode_tensor_s /= 2, powersgd.decode_tensor_s /= 2;
  powersgd.encode_bytes_per_s *= 2, powersgd.decode_bytes_per_s *= 2;
  powersgd.source =
      "half of PowerSGD's, one factor a step instead of two, Zhang et al. 2023 (arXiv 2306.08881); "
      "that: " +
      (powersgd.is_own() ? "this Cluster's own" : powersgd.source);
  return powersgd;
}

/// The times of a device for each thing that codecs do.
struct CodingDevice {
  std::string name;
  double launch_s = 0, bytes_per_s = 0, flops_per_s = 0;
  double spread = 1;  // doc::CodecCost::spread
};

void fields(auto& v, doc::Is<CodingDevice> auto& d) {
  v.required("name", d.name);
  v.optional("launch_s", d.launch_s, doc::seconds);
  v.required("bytes_per_s", d.bytes_per_s, doc::positive);
  v.required("flops_per_s", d.flops_per_s, doc::positive);
  v.required("spread", d.spread, doc::positive);
}

/// The work of a codec, or the time that it took for so many bytes and tensors. Of such a time the
/// passes take their part, and the rest is the tensors'. Without tensors all of it is the bytes'.
struct CodingWork {
  double launches = 0, launches_a_tensor = 0;
  double passes = 0;  // reads and writes of as many bytes as the dense gradients have
  bool products = false;
  double seconds = 0, bytes = 0, tensors = 0;
};

// An example: PowerSGD took .1 s for 97 MB in 161 tensors, and passes over the bytes account for
// .02 s of it. Then the tensors take the other .08 s, .5 ms each. So a bucket of many small tensors
// costs more than its bytes say.
void price(const CodingWork& work, const CodingDevice& device, doc::CodecCost& cost) {
  cost.on = doc::CodingPlace::alone;
  cost.spread = device.spread;
  cost.encode_fixed_s = work.launches * device.launch_s;
  cost.encode_tensor_s = work.launches_a_tensor * device.launch_s;
  if (work.passes > 0) cost.encode_bytes_per_s = device.bytes_per_s / work.passes;
  if (work.products) cost.flops_per_s = device.flops_per_s;
  if (work.seconds == 0) return;
  if (work.tensors > 0)
    cost.encode_tensor_s = (work.seconds - work.bytes / cost.encode_bytes_per_s) / work.tensors;
  else
    cost.encode_bytes_per_s = work.bytes / work.seconds;
}

doc::CodecCost cost_from(const doc::JsonReader& r, const std::vector<CodingDevice>& devices) {
  doc::CodecCost cost;
  CodingWork work;
  std::string device, source;
  doc::FieldReader v(r);
  v.required("name", cost.name);
  v.required("device", device);
  v.optional("published", cost.published);
  v.optional("launches", work.launches, doc::at_least_zero);
  v.optional("launches_a_tensor", work.launches_a_tensor, doc::at_least_zero);
  v.optional("passes", work.passes, doc::at_least_zero);
  v.optional("products", work.products);
  v.optional("seconds", work.seconds, doc::seconds);
  v.optional("bytes", work.bytes, doc::positive);
  v.optional("tensors", work.tensors, doc::positive);
  v.optional("source", source);
  v.require_known_keys();
  const auto of = std::ranges::find(devices, device, &CodingDevice::name);
  if (of == devices.end()) r.at("device").refuse("the name of one of the devices");
  price(work, *of, cost);
  if (source.empty()) {  // linerate's
    cost.on = doc::CodingPlace::compute;
    source = fmt::format(
        "not run on a GPU: linerate's codec by {:g} launches a bucket and {:g} a tensor",
        work.launches, work.launches_a_tensor);
  }
  cost.source = fmt::format("{}, on {}", source, device);
  return cost;
}

std::vector<doc::CodecCost> costs_of(const char* list) {
  constexpr doc::DocumentKind kCosts{"codec-costs"};
  const std::string place = "codec_costs.json";
  const doc::Json json = doc::parse_json(std::string(kCodecCosts), place);
  const doc::JsonReader r(json, place);
  doc::expect_document(r, kCosts);
  std::vector<CodingDevice> devices;
  doc::read_value(r.at("devices"), devices);
  std::vector<doc::CodecCost> costs;
  for (const doc::JsonReader& item : r.at(list).items()) costs.push_back(cost_from(item, devices));
  return costs;
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

const std::vector<doc::CodecCost>& known_codec_costs() {
  static const std::vector<doc::CodecCost> costs = costs_of("codecs");
  return costs;
}

const std::vector<doc::CodecCost>& own_codec_costs() {
  static const std::vector<doc::CodecCost> costs = costs_of("linerate");
  return costs;
}

doc::Cluster with_known_codecs(doc::Cluster cluster, doc::CodecsOf whose) {
  if (cluster.cores) return cluster;
  std::vector<doc::CodecCost> known = known_codec_costs();
  std::stable_partition(known.begin(), known.end(), [whose](const doc::CodecCost& c) {
    return c.published == (whose == doc::CodecsOf::papers);
  });
  if (whose == doc::CodecsOf::linerate)
    known.insert(known.begin(), own_codec_costs().begin(), own_codec_costs().end());
  std::move(known.begin(), known.end(), std::back_inserter(cluster.codecs));
  return cluster;
}

// The order of the search: this Cluster's own measurement, first with the same options (but for
// dense_below=, as dense tensors cost nothing here) and then by name. Then a known cost with the
// same options or for all options. Then half of PowerSGD's for ACP-SGD. Then the nearest setting.
// Then linerate's own codec, and at last what any compressor costs at least.
std::optional<CodecPrice> price_of(const doc::Component& component,
                                   const std::vector<doc::CodecCost>& codecs) {
  const std::vector<std::string> names{doc::to_text(component),
                                       doc::to_text(compress::without_dense_below(component)),
                                       component.name};
  for (const std::string& name : names)
    if (const doc::CodecCost* own = find_cost(codecs, true, {name})) return CodecPrice{*own};
  if (const doc::CodecCost* known = find_cost(codecs, false, names)) return CodecPrice{*known};
  if (component.name == kAcpsgd) {
    const auto both = price_of({std::string(kPowersgd), component.options}, codecs);
    if (both && !is_bound_from_below(both->cost))
      return CodecPrice{one_factor_of(both->cost), both->is_exact};
  }
  const doc::CodecCost* other = nearest_known(codecs, component);
  const doc::CodecCost* const any = find_cost(codecs, false, {std::string(kAnyCompressor)});
  if (other == nullptr && any != nullptr)
    if (const doc::CodecCost* own = find_cost(own_codec_costs(), false, {component.name}))
      return CodecPrice{*own};
  if (other == nullptr) other = any;
  if (other == nullptr) return std::nullopt;
  return CodecPrice{*other, false};
}

bool is_bound_from_below(const doc::CodecCost& cost) {
  return !cost.is_own() && cost.name == kAnyCompressor;
}

std::string about(const CodecPrice& price, std::string_view name) {
  if (price.cost.is_own()) return {};
  return fmt::format("{}: it is not known what coding costs here; it counts as {} ({})", name,
                     is_bound_from_below(price.cost) ? "what any compressor costs at least"
                     : price.is_exact                ? "on other GPUs"
                                                     : "that of " + price.cost.name,
                     price.cost.source);
}

}  // namespace linerate::plan
