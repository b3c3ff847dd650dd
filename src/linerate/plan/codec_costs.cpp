#include "linerate/plan/codec_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::plan {
namespace {

constexpr std::string_view kAnyCompressor = "any";
constexpr std::string_view kPowersgd = "powersgd", kAcpsgd = "acpsgd";

/// How far apart two settings of one compressor are, as ratios of its numbers; infinite for others.
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

const doc::CodecCost* find_cost(const std::vector<doc::CodecCost>& codecs, std::string_view name,
                                bool own) {
  const auto found = std::find_if(codecs.begin(), codecs.end(), [&](const doc::CodecCost& c) {
    return c.name == name && c.is_own() == own;
  });
  return found == codecs.end() ? nullptr : &*found;
}

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
  powersgd.encode_bytes_per_s *= 2, powersgd.decode_bytes_per_s *= 2;
  powersgd.source =
      "half of PowerSGD's, one factor a step instead of two, Zhang et al. 2023 (arXiv 2306.08881); "
      "that: " +
      (powersgd.is_own() ? "this Cluster's own" : powersgd.source);
  return powersgd;
}

}  // namespace

const std::vector<doc::CodecCost>& known_codec_costs() {
  static const std::vector<doc::CodecCost> costs =
      doc::cluster_from_json(std::string(kCodecCosts), "codec_costs.json").codecs;
  return costs;
}

doc::Cluster with_known_codecs(doc::Cluster cluster, Prefer prefer) {
  if (cluster.cores) return cluster;
  std::vector<doc::CodecCost> known = known_codec_costs();
  std::stable_partition(known.begin(), known.end(), [prefer](const doc::CodecCost& c) {
    return c.published == (prefer == Prefer::published);
  });
  std::move(known.begin(), known.end(), std::back_inserter(cluster.codecs));
  return cluster;
}

std::optional<CodecPrice> price_of(const doc::Component& component,
                                   const std::vector<doc::CodecCost>& codecs) {
  const std::string text = doc::to_text(component);
  for (const bool own : {true, false})
    for (const std::string& name : {text, component.name})
      if (const doc::CodecCost* cost = find_cost(codecs, name, own)) return CodecPrice{*cost};
  if (component.name == kAcpsgd) {
    const auto both = price_of({std::string(kPowersgd), component.options}, codecs);
    if (both && !is_bound_from_below(both->cost))
      return CodecPrice{one_factor_of(both->cost), both->is_exact};
  }
  const doc::CodecCost* other = nearest_known(codecs, component);
  if (other == nullptr) other = find_cost(codecs, kAnyCompressor, false);
  if (other == nullptr) return std::nullopt;
  return CodecPrice{*other, false};
}

bool is_bound_from_below(const doc::CodecCost& cost) {
  return !cost.is_own() && cost.name == kAnyCompressor;
}

std::string about(const CodecPrice& price, std::string_view name) {
  if (price.cost.is_own()) return {};
  return fmt::format("{}: what coding costs here is not known; it counts as {} ({})", name,
                     is_bound_from_below(price.cost) ? "what any compressor costs at least"
                     : price.is_exact                ? "on other GPUs"
                                                     : "that of " + price.cost.name,
                     price.cost.source);
}

}  // namespace linerate::plan
