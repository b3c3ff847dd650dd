#include "linerate/advise/search_space.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/plan/exchange_registry.hpp"

namespace linerate::advise {
namespace {

bool known(const std::string& exchange) {
  const std::vector<std::string> names = plan::exchanges().names();
  return std::find(names.begin(), names.end(), exchange) != names.end();
}

// From the plainest on: what gains nothing loses to the one before it.
constexpr std::string_view kExchanges[] = {"ddp",
                                           "bulk",
                                           "ddp(bucket=5MiB)",
                                           "ddp(bucket=10MiB)",
                                           "ddp(bucket=50MiB)",
                                           "ddp(bucket=100MiB)",
                                           "horovod",
                                           "horovod(threshold=128MiB, cycle=1ms)",
                                           "mg-wfbp",
                                           "optimal",
                                           "dear",
                                           "dear(bucket=5MiB)",
                                           "dear(bucket=50MiB)",
                                           "dear(layers=4)",
                                           "ddp(wire=fp16)",
                                           "optimal(wire=fp16)",
                                           "dear(wire=fp16)"};

// What a codec is tried behind, besides the exchange in use.
constexpr std::string_view kExchangesWithCodec[] = {"ddp", "bulk", "horovod", "optimal", "dear"};

// codec(ratio=8) as the Cluster names it, or a 16-bit cast.
std::string ratio_of(const std::string& name) {
  if (name == "fp16" || name == "bf16" || name == "f16") return "2";
  try {
    const doc::Strategy parsed = doc::parse_strategy(name);
    if (const std::string* ratio = parsed.exchange.find("ratio")) return *ratio;
  } catch (const UsageError&) {
  }
  return "";
}

std::vector<doc::Component> calibrated_codecs(const doc::Cluster& cluster,
                                              std::vector<std::string>& notes) {
  std::vector<doc::Component> codecs;
  for (const doc::CodecCost& cost : cluster.codecs) {
    const std::string ratio = ratio_of(cost.name);
    if (ratio.empty()) {
      notes.push_back(
          fmt::format("The Cluster knows the speed of codec \"{0}\", not its ratio: give --codec "
                      "\"codec(name={0}, ratio=...)\" to have it considered.",
                      cost.name));
      continue;
    }
    // A name with parentheses does not fit into an option: its rates do.
    doc::Component codec{"codec", {{"ratio", ratio}}};
    if (cost.name.find_first_of("(),=") == std::string::npos) {
      codec.options.emplace_back("name", cost.name);
    } else {
      const auto rate = [](double v) { return fmt::format("{:.6g}B/s", v); };
      if (cost.encode_bytes_per_s > 0)
        codec.options.emplace_back("encode", rate(cost.encode_bytes_per_s));
      if (cost.decode_bytes_per_s > 0)
        codec.options.emplace_back("decode", rate(cost.decode_bytes_per_s));
    }
    codecs.push_back(std::move(codec));
  }
  return codecs;
}

}  // namespace

SearchSpace search_space(const doc::Strategy& current, const std::vector<doc::Component>& codecs,
                         const std::vector<doc::Strategy>& more, const doc::Cluster& cluster) {
  SearchSpace space;
  std::vector<std::string> texts;
  const auto add = [&](const doc::Strategy& strategy) {
    const std::string text = doc::to_text(strategy);
    if (std::find(texts.begin(), texts.end(), text) != texts.end()) return;
    texts.push_back(text);
    space.strategies.push_back(strategy);
  };
  add(current);
  for (const std::string_view text : kExchanges)
    if (const doc::Strategy s = doc::parse_strategy(text); known(s.exchange.name)) add(s);
  for (const doc::Strategy& strategy : more) add(strategy);
  std::vector<doc::Component> all = codecs;
  for (doc::Component& codec : calibrated_codecs(cluster, space.notes))
    all.push_back(std::move(codec));
  for (const doc::Component& codec : all) {
    add({current.exchange, {codec}});
    for (const std::string_view text : kExchangesWithCodec)
      if (const doc::Strategy s = doc::parse_strategy(text); known(s.exchange.name))
        add({s.exchange, {codec}});
  }
  return space;
}

}  // namespace linerate::advise
