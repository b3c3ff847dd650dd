// Reads what the program that started this job (mpirun, srun) says about this process, in its
// environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace linerate::comm {

/// This process's rank; absent if no launcher started it.
std::optional<int> launcher_rank();

/// The number of processes that it started; absent if it does not say.
std::optional<int> launcher_size();

/// Why a job of one rank is suspicious: a launcher started several processes, but MPI does not
/// know. Names the variables and the next step; absent if all is well.
std::optional<std::string> lonely_rank_problem();

/// Looks at this job's ranks on this host when one does not answer. Returns a line for each unusual
/// rank: "rank 2 (pid 71) is stopped", "rank 1 is not on this host, or has ended".
std::vector<std::string> look_at_ranks();

// The number of ranks a caller counts on, against the one the job has.

/// Throws InputError with both numbers, alike on every rank, if `expected` is not the job's number.
void require_ranks(int found, std::optional<int> expected);

}  // namespace linerate::comm
