// The collectives of a recorded job become tables. A collective counts from the moment at which all
// its ranks were there. Contention and delays of the host come from the same events.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/cluster.hpp"
#include "linerate/trace/contention/slowdown.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::calibrate {

/// One table for each (collective, ranks). Its times are those of the transfers, from the last
/// rank's arrival on, without waiting for late ranks. A collective that was recorded on one rank
/// only has the least duration of its size, which may include waiting. Collectives of unknown size
/// are left out, and `notes` says so. Throws InputError if nothing is left.
///
/// By `communication_slowdown`, the time that concurrent computation (`overlap`) cost a collective
/// is taken off. With 1.25, a transfer of 10 ms with computation for 5 ms of it becomes one of 9
/// ms. 1: as recorded.
std::vector<doc::CollectiveCost> tables_from_trace(const trace::Job& job, const std::string& source,
                                                   std::vector<std::string>& notes,
                                                   const trace::Overlap& overlap = {},
                                                   double communication_slowdown = 1);

/// What a Cluster takes from a job's traces besides the tables.
struct TracedJob {
  std::vector<doc::CollectiveCost> tables;
  std::optional<doc::Contention> contention;
  double start_delay_s = 0;
  std::vector<doc::RankSpeed> late_ranks;
};

TracedJob calibrate_from_trace(const trace::Job& job, const std::string& source,
                               std::vector<std::string>& notes);

/// Ranks that explain names late, each with how much later it comes in each step, the median;
/// `notes` says which.
std::vector<doc::RankSpeed> late_ranks_of(const trace::Job& job, std::vector<std::string>& notes);

// How much computation and collectives of a recorded job slow each other down.

/// From operators and collectives that ran both with and without the other (slowdown.hpp). An
/// unknown factor is 1, and `notes` says so. Absent: both are unknown. The cost of coding is never
/// known, and 1.
std::optional<doc::Contention> contention_from_trace(const trace::Overlap& overlap,
                                                     const std::string& source,
                                                     std::vector<std::string>& notes);

// What the hosts of a recorded job add before its collectives start.

/// doc::Cluster::start_delay_s: the median time from ready to start, in seconds, of collectives
/// that came to an idle network. A collective that is ready at 5 ms counts if its rank's last one
/// ended at 4 ms. If that ended at 6 ms, the collective may have waited for it.
///
/// 0 if no trace says when collectives were ready, if too few came so, or if they scatter. `notes`
/// says which, or the interval of the result.
double start_delay_from_trace(const trace::Job& job, const std::string& source,
                              std::vector<std::string>& notes);

}  // namespace linerate::calibrate
