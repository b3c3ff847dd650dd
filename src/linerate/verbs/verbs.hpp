// linerate advise: what to do about the network.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/calibrate/probe.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/compare/comparison.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/core/units.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/trace/job/job.hpp"
#include "linerate/trace/load.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/verbs/question_argument.hpp"
#include "linerate/whatif/answer.hpp"

namespace linerate::verbs {

struct AdviseOptions {
  WorkloadArgument workload;
  NetworkArgument network;
  std::optional<doc::Strategy> current;  // absent: the Workload's, or ddp
  double least_gain_percent = 2;
  advise::AdviseOptions search;  // all but these two
};

void add_options(CLI::App& verb, AdviseOptions& options);
/// Throws UsageError, InputError.
doc::Advice advise(const AdviseOptions& options, const Caller& caller = {});

// linerate calibrate: logs people already have, or probes under mpirun, become a Cluster with
// errors.

struct CalibrateOptions {
  std::vector<std::string> logs;
  std::optional<std::string> codecs;        // empty: all of them
  std::optional<std::string> second_order;  // a table; empty: measured on these ranks
  std::string device;                       // where both are measured; empty: on processors
  std::string cluster;                      // what to add to; empty: a new one
  std::optional<Collective> collective;
  std::optional<BytesPerSecond> line_rate, link;
  std::optional<Seconds> budget;
  std::optional<Bytes> largest;
  std::vector<int> ranks;
  std::optional<int> threads, ranks_per_node, cores;

  /// Nothing else gives a network.
  bool probes_network() const { return logs.empty() && cluster.empty(); }
  /// On these ranks, rather than read from a table.
  bool probes_second_order() const { return second_order && second_order->empty(); }
  /// Compressors have code for processors of their own; K-FAC and devices are LibTorch's.
  bool needs_torch() const { return probes_second_order() || !device.empty(); }
  /// The files it names, for refuse_input_as_output().
  std::vector<std::string> inputs() const;
};

void add_options(CLI::App& verb, CalibrateOptions& options);

/// Collective; with so many compute threads a rank. What K-FAC costs is measured by LibTorch.
using SecondOrderProbe = std::function<doc::SecondOrderSamples(comm::Communicator&, int threads)>;

/// What LibTorch measures; empty without it.
struct TorchProbes {
  SecondOrderProbe second_order;
  calibrate::DeviceProbe on_device;
};

struct Calibrated {
  doc::Cluster cluster;  // on every rank of a probe
  bool is_first = true;  // of the ranks: the one that prints and writes
  std::vector<std::string> notes;
};

/// `probes`: for needs_torch(); empty: a UsageError then. Throws UsageError, InputError; CommError
/// if probes need ranks that are not there, DeviceError if a device is not.
Calibrated calibrate(const CalibrateOptions& options, const Caller& caller = {},
                     const TorchProbes& probes = {});

// linerate compare: the error of a prediction, task kind by task kind, next to the noise.

struct CompareOptions {
  std::string predicted, measured, noise;
  std::optional<int> warm_up;
};

void add_options(CLI::App& verb, CompareOptions& options);
/// Throws InputError.
compare::Comparison compare(const CompareOptions& options, const Caller& caller = {});

// linerate explain: where a step's time goes, and the verdict.

struct ExplainOptions {
  std::vector<std::string> files, alone;
  trace::Thresholds thresholds;
};

void add_options(CLI::App& verb, ExplainOptions& options);

struct Explained {
  std::string source;  // the first file
  trace::Job job;
  trace::Explanation explanation;
};

/// Throws InputError, UsageError.
Explained explain(const ExplainOptions& options, const Caller& caller = {});
/// The Timeline of its traces.
doc::Timeline timeline_of(const Explained& explained);

// linerate export: a Timeline for ui.perfetto.dev.

struct ExportOptions {
  std::vector<std::string> files;
};

void add_options(CLI::App& verb, ExportOptions& options);
/// What trace::save_perfetto() writes. Throws InputError, UsageError.
std::shared_ptr<const doc::Timeline> export_timeline(const ExportOptions& options,
                                                     const Caller& caller = {});

// linerate import: traces and per-gradient logs become a Workload.

struct ImportOptions {
  std::vector<std::string> files, alone;
  std::string add_cost;
  trace::ImportOptions how;  // all but these

  /// The files it names, for refuse_input_as_output().
  std::vector<std::string> inputs() const;
};

void add_options(CLI::App& verb, ImportOptions& options);
/// Throws InputError naming the file and what to do with it instead, UsageError.
trace::Imported import_files(const ImportOptions& options);

// linerate list strategies|compressors|cost-models|models|networks: the registries as JSON.

/// {"strategies": [{"name", "kind", "line", "source", "plans_by", ...}]}: exchanges, then what may
/// come after '+'.
std::string strategies_json();
/// {"compressors": [{"name", "line", "source", "summable", "error_feedback", "unbiased"}]}
std::string compressors_json();
/// {"cost_models": [{"name", "line", "source"}]}
std::string cost_models_json();
/// {"models": [{"name", "line", "source"}]}
std::string models_json();
/// {"networks": [{"name", "where", "law", "efficiency", "start_up_s", ..., "sources"}]}
std::string networks_json();

// linerate plan: the tasks of a step, as the simulator and training both run them.

struct PlanOptions {
  QuestionArgument question;
  bool training = false;
};

void add_options(CLI::App& verb, PlanOptions& options);
/// Throws UsageError, InputError.
whatif::Planned plan(const PlanOptions& options, const Caller& caller = {});

// linerate report: one self-contained page from Timelines, what-ifs, advice and evaluations.

struct ReportOptions {
  std::vector<std::string> files;
};

void add_options(CLI::App& verb, ReportOptions& options);
/// Throws InputError naming the file and what it is instead.
report::Inputs report(const ReportOptions& options, const Caller& caller = {});

// linerate whatif: the predicted step of every combination.

struct WhatifOptions {
  QuestionArgument question;
  std::optional<double> gamma, epsilon;
};

void add_options(CLI::App& verb, WhatifOptions& options);

/// What is asked of a Workload and a Cluster. Reads no file. Throws UsageError.
whatif::Question question_of(const WhatifOptions& options);

/// The answer, and what it was found with. Of an answer that was read from a file that is not
/// known: `workload` and `cluster` are null.
struct Asked {
  std::shared_ptr<const doc::Workload> workload;
  std::shared_ptr<const doc::Cluster> cluster;
  whatif::Question question;
  doc::Predictions answer;
};

/// Throws UsageError, InputError.
Asked whatif(const WhatifOptions& options, const Caller& caller = {});

/// Of one of its predictions. Throws UsageError for a closed formula and for an answer that was
/// read from a file, which have neither.
whatif::Planned plan_of(const Asked& asked, std::size_t prediction);
doc::Timeline timeline_of(const Asked& asked, std::size_t prediction);

/// What a page of it shows: the answer, and the Timeline of its first combination if it has one.
report::Inputs page_of(const Asked& asked);

// linerate whatif all-reduce | all-gather | ...: the time of one collective.

struct CollectiveOptions {
  Collective collective = Collective::all_reduce;
  NetworkArgument network;
  cost::CostOptions costs;
  std::vector<int> ranks;
  std::vector<Bytes> sizes;
};

/// All but the collective: its name is the verb's.
void add_options(CLI::App& verb, CollectiveOptions& options);
/// Throws UsageError, InputError.
cost::CollectiveTimes whatif_collective(const CollectiveOptions& options,
                                        const Caller& caller = {});

}  // namespace linerate::verbs
