#include "linerate/cli/run_program.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>

#include "linerate/comm/launcher.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"
#include "linerate/verbs/usage_message.hpp"

namespace linerate::cli {
namespace {

/// Before MPI is in use ranks know nothing of each other, but they read the same command line: rank
/// 0 fails alike, and its exit makes the launcher end this rank. Only if that does not happen does
/// this rank report.
void wait_for_the_launcher() { std::this_thread::sleep_for(std::chrono::seconds(2)); }

void say(std::string message) {
  const int rank = comm::launcher_rank().value_or(0);
  if (rank > 0 && !comm::mpi_in_use()) wait_for_the_launcher();
  const std::string prefix = fmt::format("rank {}: ", rank);
  if (rank > 0 && !message.starts_with(prefix)) message = prefix + message;
  fmt::print(stderr, "error: {}\n", message);
}

int fail(const Error& error) {
  if (!error.on_every_rank() || comm::launcher_rank().value_or(0) == 0) say(error.what());
  return error.exit_code();
}

/// Also --help and --version, which CLI11 throws.
int stop(const CLI::App& app, const CLI::ParseError& e) {
  if (e.get_exit_code() == 0) return comm::launcher_rank().value_or(0) == 0 ? app.exit(e) : 0;
  say(verbs::usage_message(app, e));
  return 2;
}

}  // namespace

int run_program(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    return stop(app, e);
  } catch (const Error& e) {
    return fail(e);
  } catch (const std::exception& e) {
    say(e.what());
    return 70;
  }
}

}  // namespace linerate::cli
