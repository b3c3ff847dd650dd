// What launchers leave in the environment, and when one rank alone is suspicious.
#include "linerate/comm/launcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
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

TEST(Launcher, NoneIsNoProblem) {
  const Environment environment({});
  EXPECT_EQ(launcher_rank(), std::nullopt);
  EXPECT_EQ(launcher_size(), std::nullopt);
  EXPECT_EQ(lonely_rank_problem(), std::nullopt);
}

TEST(Launcher, SlurmTasksThatMpiDoesNotKnowAreAProblem) {
  const Environment environment({{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}});
  EXPECT_EQ(launcher_rank(), 3);
  EXPECT_EQ(launcher_size(), 8);
  const std::string problem = lonely_rank_problem().value_or("");
  EXPECT_THAT(problem, HasSubstr("rank 3 of 8 by SLURM_PROCID and SLURM_NTASKS"));
  EXPECT_THAT(problem, HasSubstr("srun --mpi=pmix"));
  EXPECT_THAT(problem, HasSubstr("the option independent"));
}

TEST(Launcher, AnotherMpisLauncherIsAProblem) {
  const Environment pmi({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  EXPECT_THAT(lonely_rank_problem().value_or(""), HasSubstr("PMI_SIZE"));
  const Environment ompi({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_THAT(lonely_rank_problem().value_or(""), HasSubstr("OMPI_COMM_WORLD_SIZE"));
}

/// mpirun -n 1 inside a batch job of eight tasks: the inner launcher counts.
TEST(Launcher, OneRankWithinALargerBatchJobIsFine) {
  const Environment environment({{"OMPI_COMM_WORLD_RANK", "0"},
                                 {"OMPI_COMM_WORLD_SIZE", "1"},
                                 {"SLURM_PROCID", "0"},
                                 {"SLURM_NTASKS", "8"}});
  EXPECT_EQ(launcher_size(), 1);
  EXPECT_EQ(lonely_rank_problem(), std::nullopt);
}

TEST(Launcher, WhatIsNoNumberIsNotThere) {
  const Environment environment({{"SLURM_PROCID", "x"}, {"PMI_RANK", ""}});
  EXPECT_EQ(launcher_rank(), std::nullopt);
}

}  // namespace
}  // namespace linerate::comm
