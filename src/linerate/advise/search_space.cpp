// The strategies that advice tries. The one in use comes first, then every exchange from the
// plainest on, then what was asked for, then codecs and compressors. The order matters: of
// candidates that are about as good the first one is advised.
//
// A codec or compressor is tried with the exchanges whose registry lines say so (carriers). It
// needs a price: the Cluster's own, or one that is known from elsewhere. Compressors that send
// factors of matrices need shapes, and are left out with a note if the Workload has none.
#include "linerate/advise/search_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/plan/codec.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/planner.hpp"

namespace linerate::advise {
namespace {

// The plainest exchange, which most jobs run.
constexpr std::string_view kUsual = "ddp";

constexpr DType kCasts[] = {DType::f16, DType::bf16};

// A cost's name as a component, such as codec(ratio=8); absent: the name is none.
std::optional<doc::Component> component_named(const std::string& name) {
  try {
    return doc::parse_component(name);
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

// The ratio of codec(ratio=8), as calibrate names it; empty if the name does not say.
std::string ratio_of(const std::string& name) {
  const auto named = component_named(name);
  const std::string* ratio = named ? named->find("ratio") : nullptr;
  return ratio ? *ratio : "";
}

// The codec as a strategy says it. A name with parentheses does not fit into an option, so its
// rates stand in.
doc::Component component_of(const doc::CodecCost& cost, const std::string& ratio) {
  doc::Component codec{std::string(plan::kCodec), {{"ratio", ratio}}};
  if (cost.name.find_first_of("(),=") == std::string::npos) {
    codec.options.emplace_back("name", cost.name);
    return codec;
  }
  const auto rate = [](double v) { return fmt::format("{:.6g}B/s", v); };
  if (cost.encode_bytes_per_s > 0)
    codec.options.emplace_back("encode", rate(cost.encode_bytes_per_s));
  if (cost.decode_bytes_per_s > 0)
    codec.options.emplace_back("decode", rate(cost.decode_bytes_per_s));
  return codec;
}

bool is_cast(const std::string& name) {
  return std::any_of(std::begin(kCasts), std::end(kCasts),
                     [&](DType wire) { return name == plan::CodecModel::cast_name(wire); });
}

std::optional<doc::Component> compressor_of(const std::string& name) {
  const auto named = component_named(name);
  return named && plan::is(*named, plan::Extra::compressor) ? named : std::nullopt;
}

/// Every exchange alone and with the options that its file names, from the plainest on. An exchange
/// that gains nothing so loses to the one before it. Those that change convergence come last.
std::vector<doc::Strategy> uncompressed() {
  std::vector<doc::Strategy> all{doc::parse_strategy(kUsual)};
  for (const auto& line : plan::exchanges().lines()) {
    all.push_back({{line.name, {}}, {}});
    for (const std::string_view options : line.make.candidates.options)
      all.push_back(doc::parse_strategy(fmt::format("{}({})", line.name, options)));
  }
  std::ranges::stable_partition(all, [](const doc::Strategy& strategy) {
    return !plan::traits_of(strategy).changes_convergence;
  });
  return all;
}

/// The exchanges that a codec or a cast is tried with; the one in use first.
std::vector<doc::Component> carriers(const doc::Strategy& current) {
  std::vector<doc::Component> all{current.exchange, doc::parse_component(kUsual)};
  for (const auto& line : plan::exchanges().lines())
    if (line.make.candidates.with_codecs) all.push_back({line.name, {}});
  return all;
}

class Space {
 public:
  /// Adds none twice.
  void add(const doc::Strategy& strategy) {
    std::string text = doc::to_text(strategy);
    if (std::find(texts_.begin(), texts_.end(), text) != texts_.end()) return;
    texts_.push_back(std::move(text));
    space.strategies.push_back(strategy);
  }

  void add_codec(const doc::Component& codec, const doc::Strategy& current) {
    for (const doc::Component& exchange : carriers(current)) add({exchange, {codec}});
  }

  // The planner finds the cast's cost by the wire's name.
  void add_cast(const std::string& name, const doc::Strategy& current) {
    for (doc::Component& exchange : carriers(current)) {
      if (exchange.find("wire")) continue;
      exchange.options.emplace_back("wire", name);
      add({exchange, {}});
    }
  }

  void add_compressor(const doc::Component& component, const doc::Strategy& current) {
    const bool is_one_sum = plan::fits_decoupled(component);
    for (const doc::Component& exchange : carriers(current)) {
      const bool halves = plan::exchanges().at(exchange.name).traits.needs_summable;
      if (!exchange.find("wire") && (is_one_sum || !halves)) add({exchange, {component}});
    }
  }

  /// Adds `auto`: each bucket by the best of what is calibrated.
  void add_auto(const doc::Strategy& current) {
    for (const doc::Component& exchange : carriers(current))
      if (!exchange.find("wire")) add({exchange, {{std::string(plan::kAuto), {}}}});
  }

  /// Adds a compressor whose price is known from elsewhere, with one exchange. Such prices have
  /// computation wait for a bucket's exchange, so no other exchange hides more of it.
  void add_known(const doc::CodecCost& cost, const doc::Strategy& current) {
    const auto compressor = compressor_of(cost.name);
    if (!compressor || is_cast(cost.name)) return;  // casts are tried without a cost, too
    const bool splits = plan::exchanges().at(current.exchange.name).traits.needs_summable;
    doc::Strategy strategy{splits ? doc::parse_component(kUsual) : current.exchange, {*compressor}};
    if (strategy.exchange.find("wire")) return;
    add(strategy);
  }

  void add_calibrated(const doc::CodecCost& cost, const doc::Strategy& current) {
    if (!cost.is_own()) return add_known(cost, current);
    if (is_cast(cost.name)) return add_cast(cost.name, current);
    if (const auto compressor = compressor_of(cost.name)) {
      const auto asked = plan::asked_of_optimizer({current.exchange, {*compressor}});
      if (asked.momentum != compress::Momentum::adams) return add_compressor(*compressor, current);
      space.notes.push_back(fmt::format("{} is not tried: {}.", cost.name,
                                        plan::fit_of(asked, compress::StepsBy::adams).refused));
      return;
    }
    if (const std::string ratio = ratio_of(cost.name); !ratio.empty())
      return add_codec(component_of(cost, ratio), current);
    space.notes.push_back(
        fmt::format("The Cluster knows the speed of codec \"{0}\", not its ratio. To have it "
                    "considered, give --codec \"codec(name={0}, ratio=...)\".",
                    cost.name));
  }

  /// Of the strategies from this one on, leaves out those that a Workload without shapes is refused
  /// by.
  void leave_out_factors(std::size_t from, const doc::Cluster& cluster) {
    std::vector<std::string> names;
    const auto needs_shapes = [&](const doc::Strategy& strategy) {
      const bool needs = plan::needs_shapes(strategy, cluster);
      if (needs) add_once(names, doc::to_text(strategy.extras.front()));
      return needs;
    };
    auto& all = space.strategies;
    all.erase(
        std::remove_if(all.begin() + static_cast<std::ptrdiff_t>(from), all.end(), needs_shapes),
        all.end());
    if (!names.empty())
      space.notes.push_back(
          fmt::format("Not tried: {}. They send factors of matrices, and the Workload does not say "
                      "which gradients are matrices. Record the trace with record_shapes=True.",
                      join(names, ", ")));
  }

  SearchSpace space;

 private:
  std::vector<std::string> texts_;
};

// Memory of an exchange, read from the tasks and payloads of its Plan. Buckets and payloads are
// counted for each variant; what K-FAC and compressors keep from step to step is counted on top.

// Collectives work in place, so what travels as it is needs no second buffer.
MemoryNeed of_payloads(const doc::TaskGraph& graph) {
  MemoryNeed need;
  for (const doc::Payload& p : graph.payloads) {
    const auto bytes = static_cast<double>(p.bytes());
    switch (p.content) {
      case doc::Content::gradients:
        need.buckets += bytes;
        break;
      case doc::Content::factors:
      case doc::Content::inverse:
      case doc::Content::eigen:
        need.factors += bytes;
        break;
      default:
        need.payloads += bytes;
    }
  }
  return need;
}

double error_memory_of(const doc::Plan& plan, const doc::TaskGraph& graph) {
  std::int64_t bytes = 0;
  for (const doc::Task& t : graph.tasks) bytes += plan::kept_bytes(plan, graph, t);
  return static_cast<double>(bytes);
}

/// The type in which factors travel; if none do, that of directions. It is f64 if a gradient is.
DType dtype_of_factors(const doc::TaskGraph& graph) {
  for (const doc::Payload& p : graph.payloads)
    if (p.content == doc::Content::factors || p.content == doc::Content::inverse ||
        p.content == doc::Content::directions)
      return p.dtype;
  return DType::f32;
}

/// The ranks that do a task.
std::vector<std::int32_t> ranks_of(const doc::Plan& plan, const doc::Task& task) {
  std::vector<std::int32_t> ranks;
  for (const auto& part : plan.group_of(task).parts)
    ranks.insert(ranks.end(), part.begin(), part.end());
  if (plan.group_of(task).parts.empty())
    for (std::int32_t rank = 0; rank < plan.ranks; ++rank) ranks.push_back(rank);
  return ranks;
}

/// Elements of a factor that is not packed: the whole matrices of a dense one.
double whole_elements(const doc::Block& block, doc::FactorSide side) {
  if (!block.dense(side)) return static_cast<double>(packed_elements(block, side));
  const auto d = static_cast<double>(block.dimension(side));
  return block.groups * d * d;
}

std::vector<std::int32_t> factors_in(const doc::TaskGraph& graph, const doc::Task& task) {
  std::vector<std::int32_t> factors;
  if (task.subject == doc::Subject::payloads) {
    const doc::Payload& payload = graph.payloads[to_index(task.first)];
    factors.assign(graph.members.begin() + payload.begin, graph.members.begin() + payload.end);
  } else {
    for (std::int32_t f = task.first; f <= task.last; ++f) factors.push_back(f);
  }
  return factors;
}

/// What K-FAC keeps of a factor from step to step.
enum class Kept { statistics, averages, inverses };

std::optional<Kept> kept_by(const doc::Plan& plan, const doc::Task& task) {
  const std::string_view operation = plan.operation_name(task);
  if (task.kind == doc::TaskKind::factor) return Kept::statistics;
  if (operation == "average-factors") return Kept::averages;
  if (operation == "unpack-inverses" || task.kind == doc::TaskKind::inverse) return Kept::inverses;
  return std::nullopt;
}

/// Bytes that K-FAC keeps beyond payloads, on the rank that keeps most. Tasks say who keeps what: a
/// task's group holds the ranks that compute, average or invert a factor. A factor counts once on a
/// rank, however many variants and tasks name it.
double curvature_of(const doc::Plan& plan) {
  if (plan.blocks.empty()) return 0;
  const std::size_t ranks = to_index(plan.ranks), factors = 2 * plan.blocks.size();
  std::vector<double> bytes(ranks);
  std::vector<bool> counted(3 * ranks * factors);  // by Kept, rank and factor
  for (const doc::TaskGraph& graph : plan.variants)
    for (const doc::Task& task : graph.tasks) {
      const std::optional<Kept> kept = kept_by(plan, task);
      if (!kept) continue;
      for (const std::int32_t f : factors_in(graph, task)) {
        const auto side = doc::side_of_factor(f);
        const doc::Block& block = plan.blocks[to_index(doc::block_of_factor(f))];
        const double elements = kept == Kept::averages
                                    ? static_cast<double>(packed_elements(block, side))
                                    : whole_elements(block, side);
        for (const std::int32_t rank : ranks_of(plan, task)) {
          const auto at = (to_index(*kept) * ranks + to_index(rank)) * factors + to_index(f);
          if (!counted[at])
            bytes[to_index(rank)] +=
                elements * static_cast<double>(size_of(dtype_of_factors(graph)));
          counted[at] = true;
        }
      }
    }
  return *std::ranges::max_element(bytes);
}

}  // namespace

void add_once(std::vector<std::string>& texts, std::string text) {
  if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
}

doc::Component parse_codec(const std::string& text) {
  doc::Component codec = doc::parse_component(text);
  if (!plan::is(codec, plan::Extra::codec))
    throw UsageError(
        fmt::format("expected codec(ratio=8, encode=10GB/s, ...); found \"{}\"; a compressor of "
                    "`linerate list compressors` is tried if the Cluster has its cost (calibrate "
                    "--codecs), or as --strategy ddp+NAME",
                    text));
  return codec;
}

SearchSpace search_space(const doc::Strategy& current, const std::vector<doc::Component>& codecs,
                         const std::vector<doc::Strategy>& more, const doc::Cluster& cluster,
                         bool knows_shapes) {
  Space all;
  all.add(current);
  for (const doc::Strategy& strategy : uncompressed()) all.add(strategy);
  for (const doc::Strategy& strategy : more) all.add(strategy);
  const std::size_t asked = all.space.strategies.size();
  for (const doc::Component& codec : codecs) {
    static_cast<void>(plan::CodecModel::parse(codec, cluster));  // refuses values that no codec has
    all.add_codec(codec, current);
  }
  // A cost of any setting is tried by the settings that have costs of their own.
  const auto has_settings = [&](const doc::CodecCost& cost) {
    return !cost.is_own() && std::ranges::any_of(cluster.codecs, [&](const doc::CodecCost& c) {
      return !c.is_own() && c.name.starts_with(cost.name + "(");
    });
  };
  for (const doc::CodecCost& cost : cluster.codecs)
    if (!has_settings(cost)) all.add_calibrated(cost, current);
  if (std::ranges::any_of(cluster.codecs, [](const doc::CodecCost& c) {
        return c.is_own() && !is_cast(c.name) && compressor_of(c.name);
      }))
    all.add_auto(current);
  if (!knows_shapes) all.leave_out_factors(asked, cluster);
  return std::move(all.space);
}

MemoryNeed memory_of(const doc::Plan& plan) {
  const double curvature = curvature_of(plan);
  MemoryNeed most;
  for (const doc::TaskGraph& graph : plan.variants) {
    MemoryNeed need = of_payloads(graph);
    need.error_memory = error_memory_of(plan, graph);
    need.factors += curvature;
    if (need.total() > most.total()) most = need;
  }
  return most;
}

}  // namespace linerate::advise
