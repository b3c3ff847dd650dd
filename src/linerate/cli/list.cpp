// linerate list models|...: the registry lines, each with its paper.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/verb.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/plan/exchange_registry.hpp"

namespace linerate::cli {
namespace {

template <typename Maker>
void print_lines(const Registry<Maker>& registry) {
  std::size_t width = 0;
  for (const auto& line : registry.lines()) width = std::max(width, line.name.size());
  for (const auto& line : registry.lines())
    fmt::print("{:<{}}  {} ({})\n", line.name, width, line.line, line.source);
}

}  // namespace

void setup_list(CLI::App& app) {
  CLI::App* list =
      app.add_subcommand("list", "Print what is registered: strategies, models, cost models.");
  list->require_subcommand(1);
  list->add_subcommand("strategies", "Exchanges for --strategy, and what may follow behind '+'.")
      ->callback([] {
        print_lines(plan::exchanges());
        print_lines(plan::extras());
      });
  list->add_subcommand("compressors", "What may follow an exchange behind '+' to shrink it.")
      ->callback([] { print_lines(plan::extras()); });
  list->add_subcommand("cost-models", "Prices of an all-reduce where nothing was measured.")
      ->callback([] { print_lines(cost::all_reduce_forms()); });
  list->add_subcommand("models", "Networks for --model and zoo:NAME.")->callback([] {
    print_lines(models::catalogue());
  });
}

}  // namespace linerate::cli
