// What the interpreters of a Plan are held to: every exchange and extra of the registry, over
// awkward workloads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "linerate/compress/coding_step.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/plan/planner.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::support {

struct Setting {
  std::string name;
  doc::Workload workload;
  bool unequal = false;
};

inline std::vector<Setting> settings() {
  std::vector<Setting> all;
  all.push_back({"one gradient", workload_at({0.5}, {4 * 7}), false});
  std::vector<std::int64_t> many, primes;
  for (int i = 0; i < 300; ++i) many.push_back(1 + 977 * (i % 13) * (i % 7));
  for (const int p : {2, 3, 5, 7, 101, 1009, 10007, 100003, 1000003}) primes.push_back(p);
  all.push_back({"300 gradients", workload_of(many, 3e-4), false});
  all.push_back({"prime sizes", workload_of(primes, 2e-3), false});
  Setting mixed{"two dtypes, a tail", workload_of(primes, 2e-3), false};
  for (std::size_t i = 0; i < mixed.workload.gradients.size(); i += 2)
    mixed.workload.gradients[i].dtype = DType::f64;
  mixed.workload.forward_s = 4e-3;
  mixed.workload.update_s = 1e-3;
  mixed.workload.tail_s = 2e-3;
  all.push_back(mixed);
  // Layers without parameters at both ends and in the middle, one of no length.
  Setting layers{"empty layers", workload_of(primes, 2e-3), false};
  for (int l = 0; l < 12; ++l)
    layers.workload.layers.push_back(
        {"layer" + std::to_string(l), "linear", l == 3 ? 0 : 1e-3 * (l + 1), {}, 0});
  for (std::size_t i = 0; i < layers.workload.gradients.size(); ++i)
    layers.workload.gradients[i].layer = 10 - static_cast<int>(i);
  layers.workload.forward_s = 0.09;
  layers.workload.backward_s += 5e-3;
  all.push_back(layers);
  // What low rank pays for, beside vectors, in one bucket and over several.
  Setting matrices{"matrices",
                   workload_of({64, 64 * 64, 10, 640 * 64, 33 * 7, 1, 128 * 1024}, 2e-3), false};
  const std::vector<std::int64_t> rows = {1, 64, 1, 640, 33, 1, 128};
  for (doc::Gradient& g : matrices.workload.gradients)
    g.rows = rows[static_cast<std::size_t>(g.registration)];
  all.push_back(matrices);
  // In every place of a step, within a task and between two, for all ranks and for pairs.
  Setting others = layers;
  others.name = "other collectives";
  const double end_s = others.workload.backward_s;
  others.workload.other_collectives = {
      {Collective::all_gather, 2056, true, 2, doc::StepPlace::forward, 0, 1},
      {Collective::all_gather, 2056, true, 0, doc::StepPlace::forward, 0.0205, 1},
      {Collective::all_reduce, 1024, false, 0, doc::StepPlace::backward, 0, 1},
      {Collective::all_reduce, 1024, false, 0, doc::StepPlace::backward, 5e-3, 1},
      {Collective::reduce_scatter, 999, false, 0, doc::StepPlace::backward, end_s, 2},
      {Collective::broadcast, 100'000, false, 0, doc::StepPlace::update, 0, 1},
      {Collective::all_to_all, 4096, false, 2, doc::StepPlace::update, 0, 2}};
  all.push_back(others);
  Setting unequal = layers;
  unequal.name = "unequal ranks";
  unequal.unequal = true;
  all.push_back(unequal);
  for (Setting& setting : all)
    for (doc::Gradient& g : setting.workload.gradients)
      if (!g.rows) g.rows = 1;
  return all;
}

/// Every exchange of the registry, with the options that change its shape, and every extra.
inline std::vector<std::string> strategies() {
  const std::map<std::string, std::vector<std::string>> options = {
      {"ddp", {"first=64B, bucket=4KiB", "small=last", "wire=fp16"}},
      {"bulk", {"wire=bf16"}},
      {"horovod", {"timer=clock, cycle=2ms", "threshold=0MiB, timer=clock", "wire=fp16"}},
      {"mg-wfbp", {"wire=fp16"}},
      {"optimal", {"cap=1MiB", "wire=bf16"}},
      {"dear", {"layers=1", "bucket=1KiB", "wire=fp16"}}};
  const std::map<std::string, std::vector<std::string>> extra_options = {
      {"codec",
       {"ratio=8, encode=1GB/s, decode=2GB/s", "ratio=3, exchange=gather, decode=1GB/s",
        "ratio=8, encode=1GB/s, decode=2GB/s, on=compute"}},
      {"qsgd", {"exchange=two-phase", "exchange=gather"}},
      {"kfac",
       {"spd, clip=off, factors=1", "d, factors=1",
        "mpd, inverse=eigen, fusion=none, factors=2, inverses=4",
        "mpd, fusion=none, broadcasts=fused, factors=2, inverses=4", "mem, factors=1",
        "hybrid, factors=1", "dp, inverses=2"}},
      {"topk", {"exchange=two-phase"}}};
  std::vector<std::string> all;
  for (const auto& exchange : plan::exchanges().lines()) {
    std::vector<std::string> forms = {exchange.name};
    const auto own = options.find(exchange.name);
    if (own != options.end())
      for (const std::string& o : own->second) forms.push_back(exchange.name + "(" + o + ")");
    all.insert(all.end(), forms.begin(), forms.end());
    for (const auto& extra : plan::extras().lines()) {
      const auto known = extra_options.find(extra.name);
      for (const std::string& o :
           known == extra_options.end() ? std::vector<std::string>{""} : known->second) {
        doc::Component component = doc::parse_component(extra.name + "(" + o + ")");
        // Under ddp small tensors travel dense, as they do by default; under others they are coded.
        if (exchange.name != "ddp" && plan::is(component, plan::Extra::compressor))
          component.options.emplace_back(compress::kDenseBelow, "0");
        all.push_back(exchange.name + "+" + doc::to_text(component));
      }
    }
  }
  return all;
}

struct Case {
  const Setting* setting;  // lives as long as the program
  std::string strategy;
};

/// Every workload with every strategy. Under AddressSanitizer, which looks at what the code does
/// and not at what comes out, every fourth of them: a strategy then meets one or two of the
/// workloads.
inline std::vector<Case> cases() {
#if defined(__SANITIZE_ADDRESS__)
  constexpr std::size_t kOneOf = 4;
#else
  constexpr std::size_t kOneOf = 1;
#endif
  static const std::vector<Setting> workloads = settings();
  const std::vector<std::string> names = strategies();
  std::vector<Case> all;
  for (std::size_t w = 0; w < workloads.size(); ++w)
    for (std::size_t s = 0; s < names.size(); ++s)
      if ((w + s) % kOneOf == 0) all.push_back({&workloads[w], names[s]});
  return all;
}

inline doc::Cluster cluster_of(const Setting& setting, int ranks) {
  doc::Cluster c = two_rank_cluster(1e-4, 1e-9);
  if (setting.unequal)
    for (int r = 0; r < ranks; ++r)
      c.rank_speeds.push_back({r, 1 + 0.3 * (r % 3), r == 1 ? 4e-3 : 0});
  for (const std::string& name : compress::compressors().names())
    c.codecs.push_back({name, 1e-6, 1e9, 2e-6, 2e9});
  c.second_order = second_order_cost();
  return c;
}

inline bool is_second_order(const doc::Strategy& strategy) {
  return std::any_of(strategy.extras.begin(), strategy.extras.end(),
                     [](const auto& extra) { return plan::is(extra, plan::Extra::curvature); });
}

/// Directions of a layer's owner, or a clip, need every gradient; two rows are no grid of three.
inline bool cannot_precondition(const doc::Strategy& strategy, int ranks) {
  if (!is_second_order(strategy)) return false;
  const plan::Kfac kfac = plan::Kfac::parse(strategy.extras.front());
  const bool decoupled = plan::exchanges().at(strategy.exchange.name).traits.needs_summable;
  return (decoupled && (kfac.clips || kfac.owns_layers())) ||
         (kfac.sharing == plan::Sharing::hybrid && ranks == 3);
}

/// A compressor whose rounds are no single sum, for a gradient that it encodes; or one of 16-bit
/// sums beside a gradient that it does not.
inline bool cannot_be_halved(const doc::Strategy& strategy, const doc::Workload& workload) {
  if (strategy.extras.empty() || !plan::is(strategy.extras.front(), plan::Extra::compressor))
    return false;
  const auto compressor = compress::make_compressor(
      compress::as_planned(plan::compressors_in(strategy.extras.front()).front()));
  for (const doc::Gradient& g : workload.gradients) {
    if (g.dtype != DType::f32) continue;
    const auto rounds = compressor->rounds({g.elements, g.rows.value_or(1)});
    if (rounds.size() > 1) return true;
    if (!rounds.empty() && rounds.front().combine == compress::Combine::gather) return true;
  }
  return false;
}

/// The plan, or nothing where the strategy says by itself that this cannot be.
inline std::optional<doc::Plan> plan_of(const std::string& strategy, const Setting& setting,
                                        const doc::Cluster& cluster, int ranks, bool training) {
  plan::PlanOptions options;
  if (training) options.housekeeping = plan::Housekeeping{12345};
  const doc::Strategy parsed = doc::parse_strategy(strategy);
  const bool gathers =
      strategy.find("gather") != std::string::npos || cannot_be_halved(parsed, setting.workload);
  const bool on_compute = strategy.find("on=compute") != std::string::npos;
  const doc::Workload workload = is_second_order(parsed) && setting.workload.blocks.empty()
                                     ? with_blocks(setting.workload)
                                     : setting.workload;
  const bool decoupled = plan::exchanges().at(parsed.exchange.name).traits.needs_summable;
  if (cannot_precondition(parsed, ranks) || (decoupled && (gathers || on_compute))) {
    EXPECT_THROW(static_cast<void>(plan::make_plan(workload, cluster, parsed, ranks, options)),
                 UsageError);
    return std::nullopt;
  }
  return plan::make_plan(workload, cluster, parsed, ranks, options);
}

}  // namespace linerate::support
