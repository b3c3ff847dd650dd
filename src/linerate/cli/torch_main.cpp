// The `linerate-torch` program: the verbs that need LibTorch. Started by `linerate`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "linerate/cli/log_output.hpp"
#include "linerate/cli/torch_verb.hpp"
#include "linerate/core/error.hpp"

using namespace linerate;

int main(int argc, char** argv) {
  CLI::App app{"The verbs of linerate that need LibTorch.", "linerate"};
  app.require_subcommand(1);
  cli::setup_torch_train(app);
  cli::print_log_records();
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    return e.get_exit_code() == 0 ? app.exit(e) : (app.exit(e), 2);
  } catch (const Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return e.exit_code();
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 70;
  }
}
