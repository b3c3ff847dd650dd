// Finds out from environment variables whether a launcher started this process as one of many, and
// looks at the job's other processes on this host. MPI itself may see only one rank, if the
// launcher and the MPI library do not fit together. lonely_rank_problem() tells the user.
// look_at_ranks() adds to a message about silent ranks which of them have ended or are stopped.
#include "linerate/comm/launcher.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>

#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

/// The variables in which each launcher gives a process's rank and the number of processes. A
/// launcher inside another (mpirun in a batch job of Slurm) comes first.
struct Launcher {
  const char* rank;
  const char* size;
};
constexpr std::array<Launcher, 4> kLaunchers = {{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},  // mpirun of Open MPI
    {"PMI_RANK", "PMI_SIZE"},                          // mpiexec of MPICH, srun --mpi=pmi2
    {"SLURM_PROCID", "SLURM_NTASKS"},                  // srun
    {"PMIX_RANK", "PMIX_SIZE"},  // others; last, since MPI_Init without a launcher sets it too
}};

std::optional<int> number(const char* text) {
  int value = 0;
  if (text == nullptr) return std::nullopt;
  const char* const end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stopped != end || value < 0) return std::nullopt;
  return value;
}

/// Its variables do not exist if there is none.
const Launcher& launcher() {
  static constexpr Launcher kNone{"", ""};
  for (const Launcher& one : kLaunchers)
    if (number(std::getenv(one.rank))) return one;
  return kNone;
}

/// The value of a variable in another process's environment ("A=1\0B=2\0").
std::string_view variable_in(std::string_view environment, std::string_view name) {
  for (std::size_t at = 0; at < environment.size();) {
    const std::string_view line = environment.substr(at, environment.find('\0', at) - at);
    if (line.starts_with(name) && line.substr(name.size()).starts_with('='))
      return line.substr(name.size() + 1);
    at += line.size() + 1;
  }
  return {};
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The state of a process: 'R', 'S', 'T' .... In /proc it follows the name in parentheses, which
/// may contain anything.
char state_of(const std::filesystem::path& process) {
  const std::string stat = contents(process / "stat");
  const std::size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= stat.size() ? '?' : stat[name_end + 2];
}

struct Process {
  std::string pid;
  char state;
};

/// This job's processes on this host, by rank. Only Open MPI's jobs have a name by which processes
/// can be recognised.
std::map<int, Process> processes_of_job() {
  std::map<int, Process> found;
  const char* const job = std::getenv("PMIX_NAMESPACE");
  if (job == nullptr) return found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = contents(entry.path() / "environ");
    if (variable_in(environment, "PMIX_NAMESPACE") != job) continue;
    const auto rank = number(std::string(variable_in(environment, "PMIX_RANK")).c_str());
    // A rank's own children have its environment; the rank was there before them.
    if (rank && found.find(*rank) == found.end()) found[*rank] = {pid, state_of(entry.path())};
  }
  return found;
}

}  // namespace

std::optional<int> launcher_rank() { return number(std::getenv(launcher().rank)); }
std::optional<int> launcher_size() { return number(std::getenv(launcher().size)); }

std::optional<std::string> lonely_rank_problem() {
  const Launcher& found = launcher();
  if (launcher_size().value_or(1) <= 1) return std::nullopt;
  return fmt::format(
      "this process is rank {} of {} by {} and {} in its environment, but MPI knows of one rank. "
      "So {} independent jobs would work on the same files. Start them as one job, with srun "
      "--mpi=pmix (srun --mpi=list shows what is there) or with this MPI's own mpirun. If they are "
      "meant to be independent, set the option independent (or unset {})",
      *launcher_rank(), *launcher_size(), found.rank, found.size, *launcher_size(), found.size);
}

std::vector<std::string> look_at_ranks() {
  std::vector<std::string> lines;
  const std::map<int, Process> processes = processes_of_job();
  if (processes.empty()) return lines;
  for (int r = 0; r < launcher_size().value_or(0); ++r) {
    const auto process = processes.find(r);
    if (process == processes.end() || process->second.state == 'Z')
      lines.push_back(fmt::format("rank {} is not on this host, or has ended", r));
    else if (process->second.state == 'T' || process->second.state == 't')
      lines.push_back(fmt::format("rank {} (pid {}) is stopped", r, process->second.pid));
  }
  return lines;
}

void require_ranks(int found, std::optional<int> expected) {
  if (!expected || *expected == found) return;
  throw on_every_rank(InputError(
      "ranks", fmt::format("expected a job of {}, found {}; start it with: mpirun -n {} ...",
                           *expected, found, *expected)));
}

}  // namespace linerate::comm
