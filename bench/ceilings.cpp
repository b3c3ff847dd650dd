// What explain promises against what is gained: simulated jobs with a known cause of delay,
// explained from their traces and simulated again without it. ceilings [JOBS [FOLDER]]: keeps the
// traces.
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "linerate/core/file.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/to_workload.hpp"
#include "trace/simulated_job.hpp"

namespace linerate::trace {
namespace {

struct Tally {
  std::vector<double> truth, replayed, ceiling;  // replayed, ceiling: less the truth
  int named = 0, others = 0, below = 0, everything = 0;
};

bool is_the_cause(const Cause& c, Fault fault, const SimulatedJob& job) {
  switch (remedy_of(fault)) {
    case Remedy::no_stragglers:
      return c.kind == CauseKind::late_rank && c.rank == job.at_fault() && fault != Fault::none;
    case Remedy::no_data_stalls:
      return c.kind == CauseKind::data_loading;
    case Remedy::no_host_gaps:
      return c.kind == CauseKind::pause;
    default:
      return false;
  }
}

void add(Tally& t, std::uint64_t seed, Fault fault) {
  constexpr double kNoise = 0.02;  // of the step: the jobs' own
  const SimulatedJob job(seed, fault);
  Job recorded = job_of_ranks(job.traces());
  find_one_rank_time(recorded, std::nullopt);  // as the command does
  const Explanation e = explain(recorded);
  const double truth = job.truth(), most = share_for(e.verdict.ceilings, remedy_of(fault)).value();
  t.truth.push_back(truth);
  t.replayed.push_back(share_for(e.verdict.gains, remedy_of(fault)).value() - truth);
  t.ceiling.push_back(most - truth);
  t.below += most < truth - kNoise;
  for (const auto& share : e.verdict.ceilings) t.everything += share.value() >= 1;
  bool named = false;
  for (const Cause& c : e.breakdown.path.causes)
    if (is_the_cause(c, fault, job))
      named = true;
    else
      ++t.others;
  t.named += named;
  if (most < truth - kNoise || std::getenv("LINERATE_BENCH_ALL") != nullptr)
    fmt::print("  seed {} {}: truth {:.3f}, replayed {:.3f}, at most {:.3f}\n", seed,
               kFaultNames[static_cast<std::size_t>(fault)], truth, truth + t.replayed.back(),
               most);
}

/// The traces, to be looked at with the command.
void save(std::uint64_t seed, Fault fault, const char* folder) {
  int rank = 0;
  for (const std::string& text : SimulatedJob(seed, fault).traces())
    write_file_atomically(fmt::format("{}/job{}.rank{}.json", folder, seed, rank++), text);
}

double at(std::vector<double> values, double q) { return quantile(values, q); }

/// How many ceilings do not hold.
int compare_with_truth(int jobs, const char* folder) {
  std::vector<Tally> tallies(kFaultNames.size());
  for (int i = 0; i < jobs; ++i) {
    const auto fault = static_cast<std::size_t>(i) % kFaultNames.size();
    add(tallies[fault], static_cast<std::uint64_t>(i), static_cast<Fault>(fault));
    if (folder != nullptr) save(static_cast<std::uint64_t>(i), static_cast<Fault>(fault), folder);
  }
  fmt::print("{} jobs; in percent of the step\n{:<18}{:>5}{:>8}{:>8}{:>24}{:>24}{:>7}{:>7}\n", jobs,
             "cause", "jobs", "named", "others", "replayed - truth", "ceiling - truth", "below",
             "100 %");
  fmt::print("{:<39}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}\n", "", "least", "median", "most", "least",
             "median", "most");
  int below = 0, everything = 0;
  for (std::size_t f = 0; f < tallies.size(); ++f) {
    const Tally& t = tallies[f];
    if (t.truth.empty()) continue;
    fmt::print("{:<18}{:>5}{:>8}{:>8}", kFaultNames[f], t.truth.size(), t.named, t.others);
    for (const std::vector<double>* v : {&t.replayed, &t.ceiling})
      for (const double q : {0.0, 0.5, 1.0}) fmt::print("{:>8.1f}", 100 * at(*v, q));
    fmt::print("{:>7}{:>7}\n", t.below, t.everything);
    below += t.below, everything += t.everything;
  }
  return below + everything;
}

}  // namespace
}  // namespace linerate::trace

int main(int argc, char** argv) {
  const int jobs = argc > 1 ? std::atoi(argv[1]) : 1000;
  return linerate::trace::compare_with_truth(jobs, argc > 2 ? argv[2] : nullptr) > 0 ? 1 : 0;
}
