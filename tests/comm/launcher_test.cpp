// What launchers leave in the environment, and when one rank alone is suspicious.
#include "linerate/comm/launcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace linerate::comm {
namespace {

using ::testing::HasSubstr;

/// These variables of launchers and no others, for the length of a test.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<std::string, std::string>>& set) {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
                             "PMIX_RANK", "SLURM_PROCID", "SLURM_NTASKS"}) {
      if (const char* value = std::getenv(name)) before_.emplace_back(name, value);
      unsetenv(name);
    }
    for (const auto& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
    set_ = set;
  }
  ~Environment() {
    for (const auto& [name, value] : set_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::vector<std::pair<std::string, std::string>> set_, before_;
};

struct Launched {
  std::vector<std::pair<std::string, std::string>> variables;
  std::optional<int> rank, size;
  std::vector<std::string> problem;  // none: it is no problem
};

TEST(Launcher, IsReadFromTheEnvironment) {
  const std::vector<Launched> cases = {
      {{}, {}, {}, {}},
      {{{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}},
       3,
       8,
       {"rank 3 of 8 by SLURM_PROCID and SLURM_NTASKS", "srun --mpi=pmix",
        "the option independent"}},
      // of another MPI
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, 0, 2, {"PMI_SIZE"}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
       0,
       2,
       {"OMPI_COMM_WORLD_SIZE"}},
      // mpirun -n 1 inside a batch job of eight tasks: the inner launcher counts
      {{{"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "1"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "8"}},
       0,
       1,
       {}},
      {{{"SLURM_PROCID", "x"}, {"PMI_RANK", ""}}, {}, {}, {}}};
  for (const Launched& one : cases) {
    const Environment environment(one.variables);
    EXPECT_EQ(launcher_rank(), one.rank);
    EXPECT_EQ(launcher_size(), one.size);
    EXPECT_EQ(lonely_rank_problem().has_value(), !one.problem.empty());
    for (const std::string& text : one.problem)
      EXPECT_THAT(lonely_rank_problem().value_or(""), HasSubstr(text));
  }
}

}  // namespace
}  // namespace linerate::comm
