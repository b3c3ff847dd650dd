// The collectives of a recorded job become tables: what each took from the moment all ranks were
// there; contention and what the host adds come from the same events.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/cluster.hpp"
#include "linerate/trace/contention/overlap.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::calibrate {

/// One table for each (collective, ranks), its times those of the transfers: from the last rank's
/// arrival on, so that waiting for late ranks is not in them. A collective recorded on one rank
/// only has the least duration of its size, which may hold waiting. Collectives of unknown size are
/// left out; `notes` says what was. Throws InputError if nothing is left. `communication_slowdown`:
/// what concurrent computation cost the collectives by `overlap` is taken off. 1: as recorded.
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

}  // namespace linerate::calibrate
