#include "linerate/verbs/verbs.hpp"

#include <CLI/CLI.hpp>

namespace linerate::verbs {

// The options of a question, with the words of a single one: a Plan is of one combination.
void add_options(CLI::App& verb, PlanOptions& o) {
  add_question_options(verb, o.question);
  const auto describe = [&verb](const char* option, const char* text) {
    verb.get_option(option)->description(text);
  };
  describe("--preset", "Plan with a paper's model: zhang2020.");
  describe("--strategy", "The strategy, such as ddp or dear+codec(ratio=8).");
  describe("--ranks", "Number of ranks of the job. Default: the Cluster's.");
  describe("--bandwidth",
           "Line rate of the network per direction, such as 10Gbit/s. Default: the Cluster's.");
  describe("--compression-ratio",
           "Makes payloads this many times smaller, with encoding that takes no time: 8.");
  verb.add_flag(
      "--training", o.training,
      "Plan what linerate train runs: also scaling, flags of used parameters, and buffers.");
}

// The order is that of whatif: options, Workload, Cluster.
whatif::Planned plan(const PlanOptions& o, const Caller& caller) {
  const whatif::Question question = question_of(o.question);
  const doc::Workload workload = read_workload(o.question.workload, caller);
  const auto cluster = read_cluster(o.question, question, caller);
  return whatif::plan_one(workload, *cluster, question, o.training);
}

}  // namespace linerate::verbs
