// -c FILE or --network KIND, or a bandwidth alone: the network a verb works on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/core/units.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/models/workload.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/whatif/question.hpp"

namespace linerate::verbs {

struct NetworkArgument {
  std::string cluster, kind;

  bool is_given() const { return !cluster.empty() || !kind.empty(); }
};

void add_network_options(CLI::App& verb, NetworkArgument& argument);
/// The Cluster of the file or of the kind. Of neither, an empty one with a network of any kind, if
/// `has_bandwidth`. Throws UsageError, InputError for a file that cannot be read.
std::shared_ptr<const doc::Cluster> read_network(const NetworkArgument& argument,
                                                 bool has_bandwidth, const Caller& caller);

/// --latency, of the networks of several verbs.
void add_latency_option(CLI::App& verb, std::optional<Seconds>& latency);

// -w FILE or -w zoo:NAME with --input, --classes, --batch, --step-time, --step-time-covers,
// --scale, --device-speed: the Workload a verb works on, and the speed of the Cluster's devices.

struct WorkloadArgument {
  models::WorkloadSource source;
  std::string scale, device_speed;
  std::optional<std::string> covers;  // step or forward_backward; absent: step
};

void add_workload_options(CLI::App& verb, WorkloadArgument& argument);
/// Throws UsageError for what does not go together, InputError for a file that cannot be read.
doc::Workload read_workload(const WorkloadArgument& argument, const Caller& caller = {});
/// The Cluster, its devices as fast as --device-speed says.
std::shared_ptr<const doc::Cluster> at_device_speed(std::shared_ptr<const doc::Cluster> cluster,
                                                    const WorkloadArgument& argument);

// The options of a question about a job on a network: what `whatif` and `plan` share.

struct QuestionArgument {
  WorkloadArgument workload;
  NetworkArgument network;
  whatif::Question asked;                 // all but the next
  std::optional<std::string> all_reduce;  // absent: the library's

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

// --link RATE: a network slower than the one that is there.

/// comm::set_link() takes it, before the ranks come together.
void add_link_option(CLI::App& verb, std::optional<BytesPerSecond>& link);

}  // namespace linerate::verbs
