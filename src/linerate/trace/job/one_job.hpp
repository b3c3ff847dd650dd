// Private: do the traces of several ranks belong together?
#pragma once

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Throws InputError naming the file that is of another job: whose clock lies seconds from the
/// others', or which exchanged other sizes in every step that it shares with the first. Times are
/// absolute.
void require_one_job(const Job& job);

}  // namespace linerate::trace
