// Exit codes and what stands on standard error. Under mpirun every rank reads the same command
// line, so every rank finds the same mistake. Without care a user would read it as often as the job
// has ranks.
#include "linerate/cli/run_program.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "linerate/comm/launcher.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"

namespace linerate::cli {
namespace {

/// Before MPI is in use ranks know nothing of each other, but they read the same command line. Rank
/// 0 fails alike, and its exit makes the launcher end this rank. Only if that does not happen does
/// this rank report. An example: a file that is missing on one machine alone. Rank 3 reads it
/// there, waits its two seconds, and says "rank 3: ...".
///
/// An error that names its rank already is not prefixed again.
void say(std::string message) {
  const int rank = comm::launcher_rank().value_or(0);
  if (rank > 0 && !comm::mpi_in_use()) std::this_thread::sleep_for(std::chrono::seconds(2));
  const std::string prefix = fmt::format("rank {}: ", rank);
  if (rank > 0 && !message.starts_with(prefix)) message = prefix + message;
  fmt::print(stderr, "error: {}\n", message);
}

// What all ranks found together is said by rank 0 alone; what one found, by that one.
int fail(const Error& error) {
  if (!error.on_every_rank() || comm::launcher_rank().value_or(0) == 0) say(error.what());
  return error.exit_code();
}

/// LibTorch's errors go on with a stack of 30 frames.
int fail(const std::exception& error) {
  const std::string_view what = error.what();
  say(std::string(what.substr(0, what.find("\nException raised from "))));
  return 70;
}

/// The answer was printed into a full disk or a closed stream.
std::string no_room(int error) {
  return fmt::format("standard output: cannot write: {}; the answer is cut off",
                     std::strerror(error));
}

/// Success, if what was printed is there. A full disk shows only when the stream is flushed, and a
/// script that read half an answer must not see exit code 0.
int succeed() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  return fail(InputError(no_room(errno)));
}

}  // namespace

// Order matters: CLI::Success is not an error, and linerate's own errors have codes of their own.
// What is left is a defect: 70.
int run_program(CLI::App& app, int argc, char** argv) {
  try {
    verbs::parse_words(app, {argv + 1, argv + argc});
    return succeed();
  } catch (const CLI::Success& question) {
    if (comm::launcher_rank().value_or(0) == 0) app.exit(question);  // once, not per rank
    return succeed();
  } catch (const Error& e) {
    return fail(e);
  } catch (const std::system_error& e) {  // fmt prints
    return std::ferror(stdout) != 0 ? fail(InputError(no_room(e.code().value()))) : fail(e);
  } catch (const std::bad_alloc& e) {
    return fail(
        InputError("memory", "expected enough memory for what is asked, found less; ask for less"));
  } catch (const std::exception& e) {
    return fail(e);
  }
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSilence{1};  // what is done by then needs no progress
constexpr std::chrono::milliseconds kPause{200};
constexpr const char* kEmptyLine = "\r\033[K";

}  // namespace

// A file or a pipe gets no progress: there each line would be kept.
ProgressLine::ProgressLine(bool quiet)
    : shows_(!quiet && ::isatty(STDERR_FILENO) != 0), next_(Clock::now() + kSilence) {}

// Calls may come by the thousand a second: most return at the first test.
void ProgressLine::show(const std::string& text) {
  if (!shows_ || Clock::now() < next_) return;
  next_ = Clock::now() + kPause;
  on_screen_ = true;
  fmt::print(stderr, "{}{}", kEmptyLine, text);
  std::fflush(stderr);
}

// The line is emptied, not ended: what is printed next takes its place.
void ProgressLine::clear() {
  if (on_screen_) fmt::print(stderr, "{}", kEmptyLine);
  on_screen_ = false;
}

// exec, not fork: the new program has this one's process number, signals and streams. So mpirun, a
// batch system or a debugger that started `linerate` has `linerate-torch` in its hands.

// The arguments are read back from the kernel, as CLI11 has taken them apart by now. The path is
// that of the running file: a symbolic link to `linerate` elsewhere finds its neighbour all the
// same.
[[noreturn]] void start_beside(const std::string& program) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  std::string path = (self.parent_path() / program).string();
  std::string line = read_file("/proc/self/cmdline");  // each argument ends with a zero
  std::vector<char*> argv;
  for (std::size_t at = 0; at < line.size(); at += std::strlen(&line[at]) + 1)
    argv.push_back(&line[at]);
  argv.front() = path.data();
  const std::string verb = argv.at(1);
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  throw UsageError(verb + ": cannot start " + path + ": " + std::strerror(errno) +
                   "; build with LibTorch (make build, or cmake -DLINERATE_WITH_TORCH=ON)");
}

}  // namespace linerate::cli
