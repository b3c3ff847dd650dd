// Timeline: what happened, or what is predicted to happen; the same kind of document for sim,
// rehearse, train, import.
// Thread safety: values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/plan.hpp"

namespace linerate::doc {

/// To the nearest one, halves away from 0: what std::llround says, without its call and branches.
[[nodiscard]] inline std::int64_t nanoseconds(double seconds) {
  const double exact = seconds * 1e9;
  const auto whole = static_cast<std::int64_t>(exact);
  const double rest = exact - static_cast<double>(whole);
  return whole + (rest >= .5) - (rest <= -.5);
}

/// Event::step of what steps before the first one shown still do while that one runs.
inline constexpr std::int32_t kEarlierStep = -1;

/// Times are nanoseconds since Timeline::origin_ns. -1 in ready_ns, bytes, name, set means unknown.
struct Event {
  TaskKind kind = TaskKind::host;      // what it was
  Resource resource = Resource::host;  // the lane that it took
  std::int32_t rank = 0;               // that it ran on
  std::int32_t step = 0;               // Step::index
  std::int32_t name = -1;              // index into Timeline::names
  std::int32_t set = -1;               // index into Timeline::parameter_sets
  std::int64_t ready_ns = -1;          // exchange: when the last gradient of the bucket was there
  std::int64_t start_ns = 0;           // when it began
  std::int64_t end_ns = 0;             // when it was done
  std::int64_t bytes = -1;             // of a size known at run time: the most that it can be
  std::int32_t group = -1;  // of a collective: index into Timeline::groups; -1: the whole job

  /// How long it took.
  double seconds() const { return static_cast<double>(end_ns - start_ns) * 1e-9; }
};

/// Some ranks of the job that communicate among themselves.
struct RankGroup {
  std::string name;  // as its source calls it; empty when unknown
  int ranks = 0;     // how many
};

/// One step of one rank.
struct Step {
  std::int32_t rank = 0;      // whose it is
  std::int32_t index = 0;     // ascending
  std::int64_t start_ns = 0;  // since Timeline::origin_ns
  std::int64_t end_ns = 0;    // since Timeline::origin_ns
  std::string variant;        // of the Plan; empty when imported

  /// How long it took.
  double seconds() const { return static_cast<double>(end_ns - start_ns) * 1e-9; }
};

/// A counter at one time.
struct CounterSample {
  std::int64_t time_ns = 0;  // since Timeline::origin_ns
  double value = 0;          // in the unit that the counter's name says
};
/// A sampled quantity: "nic_sent_bytes_per_s", "nic_received_bytes_per_s", "cpu_share".
struct Counter {
  std::string name;                    // with its unit
  std::int32_t rank = 0;               // whose it is
  double period_s = 0;                 // between samples
  std::vector<CounterSample> samples;  // ascending time
};

/// Schema 1.
struct Timeline {
  std::string mode;                          // "predicted", "rehearsed", "trained", "imported"
  std::string source;                        // file or command, for people
  std::string workload;                      // its name
  std::string strategy;                      // canonical text; empty when unknown
  std::string transport;                     // "thread", "mpi", "nccl"; empty when unknown
  std::string device;                        // whose times tasks have: "cuda"; empty: processors'
  std::int64_t origin_ns = 0;                // since the epoch; 0: virtual time
  int ranks = 1;                             // of the job; events may cover fewer
  std::vector<std::string> names;            // of events
  std::vector<RankGroup> groups;             // that collectives joined
  std::vector<std::string> parameter_names;  // that sets of parameters are of
  std::vector<std::vector<std::int32_t>> parameter_sets;  // indices into parameter_names, ascending
  std::vector<Event> events;                              // of all ranks
  std::vector<Step> steps;                                // of all ranks
  std::vector<Counter> counters;                          // sampled while it ran
  std::optional<double> line_rate_bytes_per_s;            // of the slowest NIC, per direction
  // T_1 under the same contention: all ranks compute, nothing is sent
  std::optional<double> one_rank_step_s;
  std::optional<double> noise_floor;  // relative spread of an A/A run
  /// Whether communication slows simultaneous computation; absent: as on the machine. False for a
  /// rehearsal, whose computation waits, and for a prediction without contention.
  std::optional<bool> computation_slowed;
  std::vector<std::string> notes;  // what was missing on import, said to the user
  /// All that linerate keeps of the traces it was imported from, a JSON object as text: what it
  /// explains instead of the events. Empty: none.
  std::string recording;
};

[[nodiscard]] std::string to_json(const Timeline&);
[[nodiscard]] Timeline timeline_from_json(const std::string& text, const std::string& place);
[[nodiscard]] Timeline load_timeline(const std::filesystem::path&);
void save(const Timeline&, const std::filesystem::path&);

}  // namespace linerate::doc
