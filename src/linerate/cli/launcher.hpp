// What the program that started this job (mpirun, srun) says about this process.
#pragma once

#include <optional>

namespace linerate::cli {

/// This process's rank; absent where no launcher started it.
std::optional<int> launcher_rank();

}  // namespace linerate::cli
