// linerate list models|...: the registry lines, each with its paper.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/verb.hpp"
#include "linerate/models/catalogue.hpp"

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
  list->add_subcommand("models", "Networks for --model and zoo:NAME.")->callback([] {
    print_lines(models::catalogue());
  });
}

}  // namespace linerate::cli
