// From recordings of a job to what to do about its network: what the step's time goes to, the same
// job as a Workload, and every strategy simulated for it on a network of 1 Gbit/s.
// (ROOT is the folder of linerate's sources.)
//
//   $ ./080-trace-to-advice $ROOT/tests/trace/fixtures/even2.rank*.json.gz
//   verdict: network-bound (confidence 0.86)
//     exposed communication is 17 % of the step. <*>
//   10 gradients, 3.80 MB; one rank alone takes 7.49 ms
//   advice: change
//     Change ddp(bucket_cap_mb=1) to dear: 56.6 ms instead of 60.6 ms, 6.6 % less time.
//   in use: ddp(bucket_cap_mb=1)
//   1. dear                         step 56.6 ms
//   2. mg-wfbp                      step 58.9 ms
//   3. optimal                      step 58.9 ms
#include <cstdio>
#include <filesystem>
#include <vector>

#include "linerate/advise/advise.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/load.hpp"

using namespace linerate;

void advise_on(const std::vector<std::filesystem::path>& traces) {
  const trace::Explanation explained = trace::load_explained(traces).explanation;
  std::printf("verdict: %s\n  %s\n", trace::finding_text(explained.verdict).c_str(),
              explained.verdict.reason.c_str());

  const trace::Imported imported = trace::import_files(traces);
  const doc::Workload& workload = imported.workload.value();
  std::printf("%zu gradients, %s; one rank alone takes %s\n", workload.gradients.size(),
              format_size(static_cast<double>(workload.gradient_bytes())).c_str(),
              format_time(workload.one_rank_step_s()).c_str());

  doc::Cluster cluster;  // or doc::load_cluster(), of what `linerate calibrate -o` wrote
  cluster.network = {.bandwidth_bytes_per_s = parse_rate("1Gbit/s").value, .latency_s = 50e-6};
  cluster.contention = {.message_s = 60e-6};  // a rank's processors, as `calibrate` measures
  advise::AdviseOptions options;
  options.ranks = 8;
  if (!workload.current.empty()) options.current = doc::parse_strategy(workload.current);
  const doc::Advice advice = advise::advise(workload, cluster, options);

  std::printf("advice: %s\n  %s\n", std::string(name_of(advice.verdict)).c_str(),
              advice.sentence.c_str());
  std::printf("in use: %s\n", advice.current.c_str());
  for (std::size_t i = 0; i < 3 && i < advice.candidates.size(); ++i)
    std::printf("%zu. %-28s step %s\n", i + 1, advice.candidates[i].strategy.c_str(),
                format_time(advice.candidates[i].step_s.value().value).c_str());
}

int main(int argc, char** argv) {
  try {
    advise_on({argv + 1, argv + argc});
  } catch (const Error& e) {  // a message with file, place, expected, found and next step
    std::fprintf(stderr, "%s\n", e.what());
    return e.exit_code();
  }
}
