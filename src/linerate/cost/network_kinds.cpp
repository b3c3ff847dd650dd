// Networks by name. networks.json has the numbers of each kind, with the public measurements that
// they come from. A text such as "4xpcie3,tcp:10Gbit/s" becomes a Cluster. It has 4 ranks a node on
// PCI Express 3, and TCP over a line of 10 Gbit/s joins the nodes. CostModel::nominal_form() prices
// such a Cluster.
#include "linerate/cost/network_kinds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/fields.hpp"

namespace linerate::cost {

extern const std::string_view kNetworks;

namespace {

constexpr double kBitsAByte = 8;
constexpr doc::DocumentKind kKinds{"networks"};
constexpr std::array<std::string_view, 2> kPlaces = {"inside", "between"};

/// What all kinds have in common, and the kinds.
struct KnownNetworks {
  double tensor_s = 0, step_spread = 0;
  std::vector<NetworkKind> kinds;
};

NetworkKind kind_from(const doc::JsonReader& r) {
  NetworkKind k;
  doc::FieldReader v(r);
  std::int64_t between = 0;
  double line = 0, most = 0;
  v.required("name", k.name);
  between = static_cast<std::int64_t>(doc::index_in(r.at("where"), kPlaces));
  v.ignored("where");
  v.required("says", k.says);
  v.optional("law", k.law, doc::kNetworkLawNames);
  v.optional("bit_per_s", line, doc::positive);
  v.optional("efficiency", k.level.efficiency, doc::positive);
  v.optional("most_bit_per_s", most, doc::positive);
  v.optional("start_s", k.level.start_s, doc::seconds);
  v.optional("step_s", k.step_s, doc::seconds);
  v.optional("slowdown", k.slowdown, doc::positive);
  v.optional("slowdown_high", k.slowdown_high, doc::positive);
  v.optional("start_spread", k.level.start_spread, doc::positive);
  v.optional("transfer_spread", k.level.transfer_spread, doc::positive);
  v.optional("measurements", k.level.measurements, doc::Range{0, INT32_MAX});
  v.optional("adds", k.level.adds);
  v.required("sources", k.sources);
  v.require_known_keys();
  k.between = between == 1;
  k.line_bytes_per_s = line / kBitsAByte;
  k.level.most_bytes_per_s = most / kBitsAByte;
  k.slowdown_high = std::max(k.slowdown, k.slowdown_high);
  return k;
}

KnownNetworks networks_from(const std::string& text, const std::string& place) {
  const doc::Json json = doc::parse_json(text, place);
  const doc::JsonReader r(json, place);
  doc::expect_document(r, kKinds);
  KnownNetworks all;
  doc::FieldReader v(r);
  v.required("tensor_s", all.tensor_s, doc::seconds);
  v.required("step_spread", all.step_spread, doc::at_least_zero);
  for (const doc::JsonReader& item : r.at("kinds").items()) all.kinds.push_back(kind_from(item));
  std::ranges::stable_sort(all.kinds, {}, &NetworkKind::between);
  return all;
}

// Read once, from the file that LINERATE_NETWORKS names or from the text in this library.
const KnownNetworks& known_networks() {
  static const KnownNetworks all = [] {
    const char* const file = std::getenv("LINERATE_NETWORKS");
    return file != nullptr && *file != '\0'
               ? networks_from(read_file(file), file)
               : networks_from(std::string(kNetworks), "networks.json");
  }();
  return all;
}

const NetworkKind& kind_named(std::string_view name, bool between) {
  std::vector<std::string> names;
  for (const NetworkKind& k : network_kinds()) {
    if (k.between == between && k.name == name) return k;
    if (k.between == between) names.push_back(k.name);
  }
  const std::string near = nearest(std::string(name), names);
  throw UsageError(
      fmt::format("expected {}, one of {}, found \"{}\"{}; linerate list networks describes them",
                  between ? "the link between nodes" : "the link inside a node", join(names, ", "),
                  name, near.empty() ? "" : fmt::format("; did you mean {}?", near)));
}

constexpr const char* kForm = "such as 4xpcie3,tcp:10Gbit/s, 8xnvlink4 or tcp:10Gbit/s";

/// "4xpcie3": ranks and the kind; "1x": one.
std::pair<int, const NetworkKind*> inside_of(std::string_view text) {
  const std::size_t x = text.find('x');
  if (x == std::string_view::npos || x == 0)
    throw UsageError(
        fmt::format("expected ranks a node and their kind, {}, found \"{}\"", kForm, text));
  const std::int64_t ranks = parse_integer(text.substr(0, x));
  if (ranks < 1 || ranks > kMostRanks)
    throw UsageError(fmt::format("expected 1 to {} ranks a node, found {}", kMostRanks, ranks));
  const std::string_view kind = text.substr(x + 1);
  if (kind.empty() && ranks > 1)
    throw UsageError(fmt::format(
        "expected the link between the {} ranks of a node, {}, found \"{}\"", ranks, kForm, text));
  return {static_cast<int>(ranks), &kind_named(ranks == 1 ? "1x" : kind, false)};
}

doc::Link link_of(const NetworkKind& kind, double line_bytes_per_s) {
  return {kind.level.goodput(line_bytes_per_s), kind.step_s, line_bytes_per_s};
}

// "tcp:10Gbit/s": the kind and the rate of a node's line.
void add_between(std::string_view text, doc::Cluster& cluster) {
  const std::size_t colon = text.find(':');
  const NetworkKind& kind = kind_named(text.substr(0, colon), true);
  if (colon == std::string_view::npos)
    throw UsageError(
        fmt::format("expected the line of a node, {}:10Gbit/s, found \"{}\"", kind.name, text));
  const BytesPerSecond line = parse_rate(text.substr(colon + 1));
  if (!(line.value >= kLeastBandwidth.value))
    throw UsageError(fmt::format("expected at least 1bit/s, found {}", text.substr(colon + 1)));
  cluster.nominal->between = kind.level;
  cluster.network = link_of(kind, line.value);
}

std::string count_of(const doc::NominalLevel& level) {
  return fmt::format("{} public measurement{}", level.measurements,
                     level.measurements == 1 ? "" : "s");
}

/// One thing that may be measured, and how a Cluster changes that knows it.
struct Unknown {
  const char* what;
  void (*learn)(doc::Cluster&);
};

void learn_level(doc::NominalLevel& level) { level.start_spread = level.transfer_spread = 1; }

constexpr Unknown kUnknowns[] = {
    {"all-reduces of 64 KiB to 256 MiB between nodes with all their ranks (linerate calibrate, or "
     "--from a log of nccl-tests)",
     [](doc::Cluster& c) {
       // Of any kind: as the closed forms say.
       if (c.nominal->name.empty()) c.nominal->between = {};
       learn_level(c.nominal->between);
     }},
    {"all-reduces of 64 KiB to 256 MiB among the ranks of a node (linerate calibrate, or --from a "
     "log of nccl-tests)",
     [](doc::Cluster& c) { learn_level(c.nominal->inside); }},
    {"how much slower computation runs during communication (linerate import of a step's traces)",
     [](doc::Cluster& c) {
       c.nominal->slowdown_high = c.contention ? c.contention->compute_slowdown : 1;
     }},
    {"one rank's step, in several runs (linerate import of its traces)",
     [](doc::Cluster& c) { c.nominal->step_spread = 0; }},
    {"what coding costs on your device (linerate calibrate --codecs)", [](doc::Cluster& c) {
       for (doc::CodecCost& cost : c.codecs) cost.spread = 1;
     }}};

/// " To halve the interval first measure ..., which leaves 38 % of its width." It is found
/// greedily. Each thing that is unknown is taken as known in turn, and the interval's width is
/// asked for. The thing that leaves the narrowest interval goes first. The others are tried again
/// with it known, until half of the width is left or nothing narrows it. An example with a width of
/// 10 ms: knowing the links leaves 6 ms, and knowing the step 9 ms. Links go first. With links
/// known, the step leaves 4 ms, which is less than half; so both are named, in this order.
std::string what_to_measure(doc::Cluster cluster, const WidthOf& width_of) {
  const double width = width_of(cluster);
  if (!(width > 0)) return "";
  std::vector<std::string> steps;
  std::vector<Unknown> left(std::begin(kUnknowns), std::end(kUnknowns));
  for (double now = width; now > width / 2 && !left.empty();) {
    auto best = left.end();
    double least = now * 0.99;  // less than 1 % is no answer
    for (auto u = left.begin(); u != left.end(); ++u) {
      doc::Cluster known = cluster;
      u->learn(known);
      if (const double leaves = width_of(known); leaves < least) least = leaves, best = u;
    }
    if (best == left.end()) break;
    best->learn(cluster);
    now = least;
    steps.push_back(
        fmt::format("{}, which leaves {:.0f} % of its width", best->what, 100 * now / width));
    left.erase(best);
  }
  if (steps.empty()) return "";
  return fmt::format(" To halve the interval, first measure {}.", join(steps, "; then "));
}

}  // namespace

const std::vector<NetworkKind>& network_kinds() { return known_networks().kinds; }

doc::Cluster nominal_cluster(std::string_view text) {
  const std::vector<std::string> parts = split_outside_parentheses(text, ',');
  if (parts.size() > 2 || parts.front().empty())
    throw UsageError(fmt::format("expected a network, {}, found \"{}\"", kForm, text));
  const bool has_inside = parts.front().find(':') == std::string::npos;
  if (!has_inside && parts.size() > 1)
    throw UsageError(fmt::format("expected one line between nodes, {}, found \"{}\"", kForm, text));
  const auto [ranks, inside] = inside_of(has_inside ? parts.front() : "1x");
  doc::Cluster cluster;
  cluster.name = std::string(text);
  cluster.source = "by its kind; nothing of it was measured";
  cluster.ranks_per_node = ranks;
  cluster.tensor_s = known_networks().tensor_s;
  doc::NominalNetwork& nominal = cluster.nominal.emplace();
  nominal.name = std::string(text);
  nominal.law = inside->law;
  nominal.inside = inside->level;
  nominal.slowdown_high = inside->slowdown_high;
  nominal.step_spread = known_networks().step_spread;
  if (inside->slowdown > 1) cluster.contention = {.compute_slowdown = inside->slowdown};
  if (ranks > 1) cluster.node = link_of(*inside, inside->line_bytes_per_s);
  if (!has_inside || parts.size() > 1)
    add_between(parts.back(), cluster);
  else if (ranks == 1)
    throw UsageError(fmt::format("expected the line of a node, {}, found \"{}\"", kForm, text));
  return cluster;
}

// The slowest number of each kind between nodes, taken one by one. No single kind need be that
// slow.
doc::NominalNetwork any_network() {
  doc::NominalNetwork any;
  any.step_spread = known_networks().step_spread;
  doc::NominalLevel& slowest = any.between;
  for (const NetworkKind& k : network_kinds()) {
    any.slowdown_high = std::max(any.slowdown_high, k.slowdown_high);
    if (!k.between || k.name == "wan") continue;
    const doc::NominalLevel& level = k.level;
    slowest.efficiency = std::min(slowest.efficiency, level.efficiency);
    if (level.most_bytes_per_s > 0)
      slowest.most_bytes_per_s = slowest.most_bytes_per_s > 0
                                     ? std::min(slowest.most_bytes_per_s, level.most_bytes_per_s)
                                     : level.most_bytes_per_s;
    slowest.start_s = std::max(slowest.start_s, level.start_s);
    slowest.start_spread = std::max(slowest.start_spread, level.start_spread);
    slowest.transfer_spread = std::max(slowest.transfer_spread, level.transfer_spread);
    slowest.measurements += level.measurements;
  }
  return any;
}

std::string nominal_note(const doc::Cluster& cluster, int ranks, const WidthOf& width_of) {
  if (!cluster.nominal || !cluster.collectives.empty() || ranks <= 1) return "";
  const doc::NominalNetwork& n = *cluster.nominal;
  const std::string first = what_to_measure(cluster, width_of);
  if (n.name.empty())
    return fmt::format(
        "Nothing of the network was measured, and its kind is not known, so the interval reaches "
        "to the slowest kind at this bandwidth. --network says the kind (linerate list "
        "networks).{}",
        first);
  const int nodes = (ranks + cluster.ranks_per_node - 1) / cluster.ranks_per_node;
  const std::string basis =
      nodes == 1
          ? fmt::format("{} of the links inside a node", count_of(n.inside))
          : fmt::format("{} of the links between nodes{}", count_of(n.between),
                        cluster.ranks_per_node > 1
                            ? fmt::format(" and {} of the links inside a node", count_of(n.inside))
                            : "");
  return fmt::format(
      "Nothing of this network was measured. {} is known by its kind alone, from {}.{}", n.name,
      basis, first);
}

}  // namespace linerate::cost
