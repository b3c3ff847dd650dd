// The options of a question about a job on a network: what `whatif` and `plan` share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/verbs/network_argument.hpp"
#include "linerate/verbs/workload_argument.hpp"
#include "linerate/whatif/question.hpp"

namespace linerate::verbs {

struct QuestionArgument {
  WorkloadArgument workload;
  NetworkArgument network;
  std::string preset, latency;
  std::vector<std::string> strategies;
  std::string ranks, bandwidths, ratios;
  std::optional<std::string> all_reduce;
  std::string codecs;

  /// The files it names, for refuse_input_as_output().
  std::vector<std::string> inputs() const { return {workload.source.reference, network.cluster}; }
};

void add_question_options(CLI::App& verb, QuestionArgument& argument);
/// Throws UsageError naming the option.
whatif::Question question_of(const QuestionArgument& argument);
/// The Cluster, or the network of the kind or of any where the question brings its own bandwidth.
/// Throws UsageError when there is no network at all, InputError for a file that cannot be read.
std::shared_ptr<const doc::Cluster> read_cluster(const QuestionArgument& argument,
                                                 const whatif::Question& question,
                                                 const Caller& caller = {});

}  // namespace linerate::verbs
