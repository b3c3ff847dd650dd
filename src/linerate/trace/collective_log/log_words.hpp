// Private: the words and conventions that logs of collective benchmarks share.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/collective.hpp"
#include "linerate/core/dtype.hpp"

namespace linerate::trace {

/// "[1,0]<stdout>: text" of mpirun --tag-output becomes "text".
std::string_view without_mpi_tag(std::string_view line);
std::vector<std::string_view> words_of(std::string_view line);
/// The whole word as a number; "1.2e+06" and "12.00" included, "N/A" and "nan" not.
std::optional<double> number_of(std::string_view word);
/// "float", "ncclFloat32", "MPI_CHAR", "half", "bfloat16", "Float" ... nullopt when unknown.
std::optional<DType> dtype_of_log(std::string_view name);
/// busbw/algbw of an all-reduce is 2(n-1)/n: n = 2/(2 - ratio). nullopt when that is no whole
/// number within rounding.
std::optional<int> ranks_of_all_reduce(double bus_over_alg);
/// "all_reduce_perf", "alltoall_perf", "Allgather" ... anywhere in the text.
std::optional<Collective> collective_named_in(std::string_view text);
/// The rank count that holds: the log's, else the caller's, else 0. Throws InputError when they
/// contradict.
int settle_ranks(const std::string& name, std::optional<int> from_log,
                 std::optional<int> from_caller);

}  // namespace linerate::trace
