// linerate list models|...: the registry lines, each with its paper.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "linerate/cli/verb.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/plan/registry.hpp"
#include "linerate/verbs/list.hpp"

namespace linerate::cli {
namespace {

template <typename Maker>
std::size_t width_of(const Registry<Maker>& registry) {
  std::size_t width = 0;
  for (const auto& line : registry.lines()) width = std::max(width, line.name.size());
  return width;
}

template <typename Maker>
void print_lines(const Registry<Maker>& registry) {
  for (const auto& line : registry.lines())
    fmt::print("{:<{}}  {} ({})\n", line.name, width_of(registry), line.line, line.source);
}

// What a strategy asks for and what it does, under its line.
std::string text_of(const plan::Traits& t) {
  std::string text = fmt::format("plans by {}", name_of(t.plans_by));
  if (t.changes_convergence) text += "; changes convergence";
  if (t.needs_summable) text += "; payloads must be summable";
  text += fmt::format("; {}", fmt::join(t.runs.names(), ", "));
  if (!t.why_not_train.empty()) text += fmt::format(" (no training: {})", t.why_not_train);
  return text;
}

template <typename Entry>
void print_strategies(const Registry<Entry>& registry, std::size_t width) {
  for (const auto& line : registry.lines())
    fmt::print("{:<{}}  {} ({})\n{:<{}}  {}\n", line.name, width, line.line, line.source, "", width,
               text_of(line.make.traits));
}

void list_strategies(bool json) {
  if (json) return fmt::print("{}", verbs::strategies_json());
  const std::size_t width = std::max(width_of(plan::exchanges()), width_of(plan::extras()));
  print_strategies(plan::exchanges(), width);
  print_strategies(plan::extras(), width);
}

std::string text_of(const compress::Compressor& c) {
  return fmt::format("payloads are {}; error feedback: {}{}",
                     compress::is_summable(c) ? "summed" : "gathered", name_of(c.residual()),
                     c.is_unbiased() ? "; unbiased" : "");
}

void list_compressors(bool json) {
  if (json) return fmt::print("{}", verbs::compressors_json());
  const auto& registry = compress::compressors();
  for (const auto& line : registry.lines())
    fmt::print("{:<{}}  {} ({})\n{:<{}}  {}\n", line.name, width_of(registry), line.line,
               line.source, "", width_of(registry),
               text_of(*compress::make_compressor({line.name, {}})));
}

void list_cost_models(bool json) {
  json ? fmt::print("{}", verbs::cost_models_json()) : print_lines(cost::all_reduce_forms());
}

void list_models(bool json) {
  json ? fmt::print("{}", verbs::models_json()) : print_lines(models::catalogue());
}

}  // namespace

void setup_list(CLI::App& app) {
  CLI::App* list =
      app.add_subcommand("list", "Print what is registered: strategies, models, cost models.");
  list->require_subcommand(1);
  const auto add = [list](const char* name, const char* what, void (*print)(bool)) {
    const auto json = std::make_shared<bool>(false);
    CLI::App* verb = list->add_subcommand(name, what);
    verb->add_flag("--json", *json, "Print the list as JSON.");
    verb->callback([json, print] { print(*json); });
  };
  add("strategies", "Exchanges for --strategy, and what may come after '+'.", list_strategies);
  add("compressors", "Compressors: what may come after an exchange and '+'.", list_compressors);
  add("cost-models", "Prices of an all-reduce if nothing was measured.", list_cost_models);
  add("models", "Networks for --model and zoo:NAME.", list_models);
}

}  // namespace linerate::cli
