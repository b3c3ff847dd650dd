// The output of benchmarks of collectives: calibrate reads it, explain and import say so.
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/trace/importer/importer.hpp"

namespace linerate::trace {
namespace {

Match matches_benchmark_log(const Head& head) {
  return yes_if((head.form() == HeadForm::object && bench_logs::is_nccl_tests_json(head.text())) ||
                (head.form() == HeadForm::text && bench_logs::is_collective_log(head.bytes())));
}

}  // namespace

std::vector<Importer> benchmark_log_importers() {
  return {{.name = "benchmark log",
           .matches = matches_benchmark_log,
           .advice = "a log of collectives, not of a training step; run linerate calibrate --from "
                     "{file} -o cluster.json"}};
}

}  // namespace linerate::trace
