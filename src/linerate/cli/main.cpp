// The `linerate` command. A verb that needs LibTorch is started as `linerate-torch`, as git does
// with its verbs, so that every other verb starts in milliseconds.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "linerate/cli/verb.hpp"
#include "linerate/core/error.hpp"

using namespace linerate;

int main(int argc, char** argv) {
  CLI::App app{"Measures, predicts and runs synchronous data-parallel training.", "linerate"};
  app.require_subcommand(1);
  app.set_version_flag("--version", LINERATE_VERSION);
  for (const cli::Verb& verb : cli::kVerbs) verb.setup(app);
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
