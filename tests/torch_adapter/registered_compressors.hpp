// Every compressor of the registry with options that suit small tensors.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "linerate/compress/coding_step.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::torch_adapter {

/// The compressor codes tensors of every size.
inline std::string with_small_tensors(const std::string& compressor) {
  doc::Component component = doc::parse_component(compressor);
  if (compress::as_planned(component) != component)
    component.options.emplace_back(compress::kDenseBelow, "0");
  return doc::to_text(component);
}

/// Small as the model is, each of them finds something to encode.
inline std::string small_enough(const std::string& name) {
  const std::vector<std::string> options = compress::options_of(name);
  const auto has = [&](const char* option) {
    return std::find(options.begin(), options.end(), option) != options.end();
  };
  return with_small_tensors(name + (has("rank")                     ? "(rank=1)"
                                    : has("density") && !has("tau") ? "(density=0.1)"
                                                                    : ""));
}

/// The optimizer's momentum beside this strategy: none where its compressor has its own.
inline double momentum_beside(const std::string& strategy, double momentum) {
  const auto asked = plan::asked_of_optimizer(doc::parse_strategy(strategy)).momentum;
  return asked == compress::Momentum::optimizers ? momentum : 0;
}

/// By every exchange that its payloads can take.
inline std::vector<std::string> by_each_exchange(const std::string& compressor) {
  const doc::Component component = doc::parse_component(compressor);
  if (!compress::fits_two_phase(*compress::make_compressor(component))) return {};
  std::vector<std::string> all;
  for (const char* exchange : {"gather", "two-phase"}) {
    doc::Component by = component;
    by.options.emplace_back("exchange", exchange);
    all.push_back(doc::to_text(by));
  }
  return all;
}

/// Every compressor, by every exchange that its payloads can take; and those whose steps differ.
inline std::vector<std::string> registered_compressors() {
  std::vector<std::string> all;
  for (const char* phased : {"powersgd(rank=1, warmup=3)", "acpsgd(rank=1, warmup=3)",
                             "dgc(density=0.1, warmup=3)", "onebit-adam(freeze_step=3)"})
    all.push_back(with_small_tensors(phased));
  all.push_back("onebit-adam(freeze_step=3, dense_below=0, exchange=gather)");
  for (const std::string& name : compress::compressors().names()) {
    all.push_back(small_enough(name));
    for (std::string& by : by_each_exchange(all.back())) all.push_back(std::move(by));
  }
  return all;
}

/// In small buckets, and by the decoupled exchange where that can be.
inline std::vector<std::string> coding_strategies(const std::string& decoupled = "dear") {
  std::vector<std::string> all;
  for (const std::string& name : registered_compressors()) {
    all.push_back("ddp(first=64B, bucket=2KiB)+" + name);
    if (plan::fits_decoupled(plan::compressors_in(doc::parse_component(name)).front()))
      all.push_back(decoupled + "+" + name);
  }
  return all;
}

/// Every exchange that trains, and some with options that change their buckets.
inline std::vector<std::string> training_exchanges() {
  std::vector<std::string> all = {"ddp(first=64B, bucket=512B)", "dear(layers=1)",
                                  "dear(bucket=64B)"};
  for (const auto& line : plan::exchanges().lines())
    if (line.make.traits.runs.train) all.push_back(line.name);
  return all;
}

/// And some that change what is sent.
inline std::vector<std::string> exchange_strategies() {
  std::vector<std::string> all = training_exchanges();
  all.insert(all.end(), {"auto", "ddp(wire=fp16)", "dear(wire=bf16)"});
  return all;
}

/// Sums of products, whose order is the operator's: bits are not the same everywhere.
inline bool multiplies_matrices(const std::string& strategy) {
  return strategy.find("powersgd") != std::string::npos ||
         strategy.find("acpsgd") != std::string::npos;
}

}  // namespace linerate::torch_adapter
