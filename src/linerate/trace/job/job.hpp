// What explain works on: the activity of each rank of one job, lean, from whatever format it was
// read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/collective.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/core/intervals.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/trace/job/comm_op.hpp"

namespace linerate::trace {

/// One communication on one rank. -1: unknown.
struct Communication {
  Span span;
  CommOp op = CommOp::unknown;
  std::int32_t group = -1;  // index into Job::groups
  std::int32_t group_size = -1;
  std::int64_t bytes = -1;  // S of core/collective.hpp
  bool gradients = true;    // false: known to carry flags, buffers or other things
  bool deduced =
      false;  // bytes are not the communication's own record but its launching annotation's input
  std::int64_t sequence = -1;   // per group, equal on all ranks
  std::uint64_t comms_id = 0;   // of this one collective, equal on all ranks; 0: absent
  std::int64_t bus_bytes = -1;  // of an uneven all-to-all: what crosses the network; -1: even
  std::int32_t step = -1;       // position in RankActivity::steps of the launch
};

struct StepSpan {
  std::int64_t number = 0;
  Span span;
};

/// A gradient exchange as the host announced it, where no kernel ran (one rank) or beside the
/// kernels.
struct Announced {
  std::int32_t step = -1;
  CommOp op = CommOp::unknown;
  std::int64_t bytes = -1;
};

struct RankActivity {
  int rank = -1;  // -1: the trace does not say
  std::string source;
  std::int64_t stamp_ns = 0;    // add it to a time here to get the number that stands in the file
  std::vector<StepSpan> steps;  // ascending number
  std::vector<Span> compute;    // every device computation, any order
  std::vector<Span> copies;     // memcpy and memset
  std::vector<Communication> communications;  // by start
  std::vector<Announced> announced;           // by start
};

/// A gradient as one backward pass of one rank made it ready, from the trace's own records.
struct GradientRecord {
  std::int64_t elements = 0;
  DType dtype = DType::f32;
  std::int64_t ready_ns = 0;  // since the start of backward, never decreasing
  int layer = 0;              // index into Job::layers
};
/// An autograd node that made gradients ready, in backward order.
struct LayerRecord {
  std::string kind;  // "Addmm", "Convolution", "NativeBatchNorm", ...
  std::int64_t backward_ns = 0;
};

/// All traces of one job. Times are nanoseconds since origin_ns; clocks of ranks may differ
/// (breakdown.hpp).
struct Job {
  std::vector<RankActivity> ranks;
  int world_size = -1;  // -1: unknown
  std::int64_t origin_ns = 0;
  std::vector<std::string> groups;
  bool has_durations = true;           // host execution traces have none
  bool communication_unknown = false;  // ranks > 1 and not one communication matched: null, never 0
  bool cpu_device = false;             // no accelerator in it: CPU operations stand for the device
  bool cycle = false;  // predicted steps that repeat: what lies outside them is of other steps
  std::vector<GradientRecord> gradients;  // in ready order; empty: unknown
  std::vector<LayerRecord> layers;        // of the same backward pass
  std::int64_t backward_begin_ns = 0;     // since the start of its step
  std::vector<doc::Counter> counters;
  std::optional<double> line_rate_bytes_per_s;
  std::optional<double> one_rank_step_s;
  std::vector<std::string> notes;  // what was missing or refused, said to the user
};

/// Position of the group in Job::groups, added where it is new.
std::int32_t group_index(Job& job, const std::string& group);
void sort_by_start(std::vector<Communication>& communications);
/// Adds `by_ns` to every time of the rank but stamp_ns.
void shift(RankActivity& rank, std::int64_t by_ns);

}  // namespace linerate::trace
