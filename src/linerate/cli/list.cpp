// linerate list models|...: the registry lines, each with its paper.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "linerate/cli/verb.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/network_kinds.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/verbs/verbs.hpp"

namespace linerate::cli {
namespace {

/// Prints the lines of these registries in one column. What `more` says of a line follows it, if
/// that is anything.
template <typename More, typename... Maker>
void print_lines(More more, const Registry<Maker>&... registries) {
  std::size_t width = 0;
  for (const auto& names : {registries.names()...})
    for (const std::string& name : names) width = std::max(width, name.size());
  const auto print = [&](const auto& line) {
    fmt::print("{:<{}}  {} ({})\n", line.name, width, line.line, line.source);
    if (const std::string text = more(line); !text.empty())
      fmt::print("{:<{}}  {}\n", "", width, text);
  };
  (std::ranges::for_each(registries.lines(), print), ...);
}

constexpr auto kNothingMore = [](const auto&) { return std::string(); };

// What a strategy asks for and what it does, under its line: "plans by cost; changes convergence;
// simulate, rehearse".
std::string text_of(const plan::Traits& t) {
  std::string text = fmt::format("plans by {}", name_of(t.plans_by));
  if (t.changes_convergence) text += "; changes convergence";
  if (t.needs_summable) text += "; payloads must be summable";
  text += fmt::format("; {}", fmt::join(t.runs.names(), ", "));
  if (!t.why_not_train.empty()) text += fmt::format(" (no training: {})", t.why_not_train);
  return text;
}

// Exchanges and extras share a column, as "+" joins them.
void list_strategies() {
  print_lines([](const auto& line) { return text_of(line.make.traits); }, plan::exchanges(),
              plan::extras());
}

// How payloads of ranks become one result, and what happens to what is cut off.
std::string text_of(const compress::Compressor& c) {
  return fmt::format("payloads are {}; error feedback: {}{}",
                     compress::is_summable(c) ? "summed" : "gathered", name_of(c.residual()),
                     c.is_unbiased() ? "; unbiased" : "");
}

void list_compressors() {
  print_lines(
      [](const auto& line) {
        return text_of(*compress::make_compressor({line.name, {}}));
      },
      compress::compressors());
}

// A spread of 1.5 is a factor either way: "x 1/1.5 .. 1.5".
std::string times_of(double spread) {
  return spread > 1 ? fmt::format("x 1/{0:.3g} .. {0:.3g}", spread) : "-";
}

/// The share of a line that collectives get, and the most of any.
std::string share_of(const cost::NetworkKind& k) {
  if (!k.between && !(k.line_bytes_per_s > 0)) return "-";
  std::string text = fmt::format("{:.0f} %", 100 * k.level.efficiency);
  if (k.line_bytes_per_s > 0) text += fmt::format(" of {}", format_bit_rate(k.line_bytes_per_s));
  if (k.level.most_bytes_per_s > 0)
    text += fmt::format(", at most {}", format_bit_rate(k.level.most_bytes_per_s));
  return text;
}

// Three rank counts, as start-ups of some kinds grow with the ranks, and those of others do not.
std::string start_up_of(const cost::NetworkKind& k) {
  if (!(k.start_up_s(2) > 0)) return "-";
  return fmt::format("{}, {}, {}", format_time(k.start_up_s(2)), format_time(k.start_up_s(8)),
                     format_time(k.start_up_s(32)));
}

// A law says how the ranks of a node share its links; between nodes it means nothing.
void list_networks() {
  std::vector<std::vector<std::string>> rows;
  for (const cost::NetworkKind& k : cost::network_kinds())
    rows.push_back(
        {k.name, k.between ? "between nodes" : "inside a node",
         k.between ? "-" : std::string(doc::kNetworkLawNames[static_cast<std::size_t>(k.law)]),
         share_of(k), start_up_of(k),
         k.between ? "-" : fmt::format("{:.3g} (1 .. {:.3g})", k.slowdown, k.slowdown_high),
         times_of(k.level.transfer_spread), times_of(k.level.start_spread),
         std::to_string(k.level.measurements)});
  fmt::print("{}",
             text_table({"kind", "where", "law", "collectives get", "start-up on 2, 8, 32 ranks",
                         "computing slows", "spread of bytes", "of start-ups", ">measurements"},
                        rows));
  fmt::print("The spreads hold 90 % of the networks of a kind.\n");
  for (const cost::NetworkKind& k : cost::network_kinds())
    fmt::print("{}: {} ({})\n", k.name, k.says, join(k.sources, "; "));
}

}  // namespace

void setup_list(CLI::App& app) {
  CLI::App* list = app.add_subcommand(
      "list", "List what is available: strategies, compressors, cost models, networks, models.");
  list->require_subcommand(1);
  const auto add = [list](const char* name, const char* what, std::string (*as_json)(),
                          void (*print)()) {
    const auto json = std::make_shared<bool>(false);
    CLI::App* verb = list->add_subcommand(name, what);
    verb->add_flag("--json", *json, "Print the list as JSON.");
    verb->callback([=] { *json ? fmt::print("{}", as_json()) : print(); });
  };
  add("strategies", "Exchanges for --strategy, and the parts that may follow '+'.",
      verbs::strategies_json, list_strategies);
  add("compressors", "Compressors: they may follow an exchange and '+'.", verbs::compressors_json,
      list_compressors);
  add("cost-models", "Prices of an all-reduce on a network that was not measured.",
      verbs::cost_models_json, [] { print_lines(kNothingMore, cost::all_reduce_forms()); });
  add("networks", "Kinds of networks for --network, and what is known of each.",
      verbs::networks_json, list_networks);
  add("models", "Networks for --model and zoo:NAME.", verbs::models_json,
      [] { print_lines(kNothingMore, models::catalogue()); });
}

}  // namespace linerate::cli
