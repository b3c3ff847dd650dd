// Private: one rank's PyTorch/Kineto Chrome trace, as read; kineto_job.cpp makes a rank of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "linerate/trace/job/job.hpp"
#include "linerate/trace/job/process_group.hpp"
#include "linerate/trace/kineto/collective_args.hpp"
#include "linerate/trace/kineto/name_table.hpp"
#include "linerate/trace/kineto/tensor_arguments.hpp"

namespace linerate::trace {

/// How an uneven all-to-all cuts its input and output, by rank of the group; in elements or in
/// rows.
struct SplitSizes {
  std::vector<std::int64_t> in, out;
  bool cut = false;  // PyTorch writes 30 items at most
};

/// A kernel or a copy. Times of all records here are nanoseconds as written: baseTimeNanoseconds is
/// not added yet.
struct DeviceEvent {
  Span span;
  std::uint64_t correlation = 0, external_id = 0;  // 0: absent
  std::int64_t tid = 0;                            // its stream
  std::int32_t name = -1;                          // in KinetoTrace::names; of a copy none is kept
  std::int32_t args = -1;                          // index into KinetoTrace::args
  std::uint64_t launch_size = 0;                   // hash of a kernel's grid and blocks; 0: unknown
  bool copy = false;
  bool to_device = false;  // a copy from the host
};
/// A record_param_comms operation, or an annotation such as nccl:all_reduce.
struct CommMark {
  Span span;
  std::uint64_t external_id = 0;  // 0: absent
  std::int64_t tid = 0;
  std::int32_t name = -1;
  std::int32_t args = -1;
};
/// A call of the device's runtime: launches, and what waits for the device.
struct Launch {
  std::uint64_t correlation = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t tid = 0;
};
/// An operator or an annotation of the host, on one of its threads.
struct CpuOp {
  Span span;
  std::int64_t tid = 0;
  std::int32_t name = -1;
  std::int32_t shapes = -1;  // index into KinetoTrace::shapes
  DType dtype = DType::f32;  // of the first tensor input that has one
};

/// One rank's trace. Records refer to names, args, splits and shapes by index, because many records
/// share them, and a trace has millions of records.
struct KinetoTrace {
  std::string source;
  int rank = -1, world_size = -1;
  std::string backend;
  std::int64_t base_ns = 0;
  NameTable names;
  std::vector<ConfiguredGroup> configured;
  std::vector<ResolvedGroup> groups;
  std::vector<DeviceEvent> device;
  std::vector<CollectiveArgs> args;
  std::vector<SplitSizes> splits;
  std::vector<std::vector<TensorShape>> shapes;  // of the first inputs of an operator
  std::vector<CommMark> marks;
  std::vector<CommMark> operators;  // c10d::*, which issue communications
  std::vector<Launch> launches;
  std::vector<CpuOp> ops;
  std::vector<StepSpan> steps;                     // of the host, ascending number
  std::int64_t step_thread = 0;                    // which marks the steps
  std::vector<StepSpan> device_steps;              // gpu_user_annotation of the same names
  std::map<std::string, int> unknown_collectives;  // name, records of it
  std::size_t events = 0;
  std::size_t own = 0;           // complete events of a category that PyTorch writes
  std::size_t other_device = 0;  // records of accelerators not understood here
  std::size_t without_duration = 0, bad_time = 0, absurd = 0;
  std::vector<std::string> notes;
};

inline bool is_communication_kernel(const KinetoTrace& trace, const DeviceEvent& e) {
  return !e.copy && trace.names[e.name].kind == NameKind::communication_kernel;
}

}  // namespace linerate::trace
