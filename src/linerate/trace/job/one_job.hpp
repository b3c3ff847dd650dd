// Private: do the traces of several ranks belong together?
#pragma once

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Throws InputError naming the file that is of another job. Each file is compared with the first
/// one. It is of another job if its record lies more than 2 seconds apart. It is also of another
/// job if they exchanged no common size in any common step. Times are absolute. Stamps that count
/// from the start of a machine are not compared.
void require_one_job(const Job& job);

}  // namespace linerate::trace
