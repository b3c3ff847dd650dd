// Private: one rank's PyTorch/Kineto Chrome trace, as read; kineto_job.cpp makes sense of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "linerate/trace/input/input.hpp"
#include "linerate/trace/job/job.hpp"
#include "linerate/trace/job/process_group.hpp"

namespace linerate::trace {

/// What the name of an event says, decided once per distinct name.
enum class NameKind : std::uint8_t {
  plain,
  communication_kernel,
  step,
  comm_mark,
  param_comms,
  c10d,
  accumulate_grad,
  evaluate,
  ddp
};

struct NameInfo {
  std::string text;  // as in the file, escapes included
  NameKind kind = NameKind::plain;
  CommOp op = CommOp::unknown;  // communication kernels and marks
  bool host_backend =
      false;  // comm_mark: gloo and other CPU back ends, whose mark is the communication
  bool suspicious =
      false;  // looks like communication without being matched (multimem, one_shot, ...)
  std::int64_t step = -1;  // ProfilerStep#n
};

/// Distinct names with their meaning.
class NameTable {
 public:
  std::int32_t intern(std::string_view raw);
  const NameInfo& operator[](std::int32_t i) const { return names_[static_cast<std::size_t>(i)]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::vector<NameInfo> names_;
  std::vector<std::int32_t> slots_;  // open addressing, -1 empty
  void grow();
};

/// The collective metadata of a kernel or of a record_param_comms operation. -1: absent.
struct CollectiveArgs {
  CommOp op = CommOp::unknown;
  bool ignored = false;  // wait, init: no communication
  std::int64_t in_elements = -1, out_elements = -1;
  int element_bytes = -1;
  int group_size = -1;
  std::int32_t group = -1;  // index into KinetoTrace::groups
  std::int64_t sequence = -1;
  std::uint64_t comms_id = 0;  // 0: absent
  std::int32_t splits = -1;    // index into KinetoTrace::splits

  /// S of core/collective.hpp: elements are per rank, so that the larger side is the total array.
  std::int64_t bytes() const {
    const std::int64_t n = in_elements > out_elements ? in_elements : out_elements;
    // 2^40 elements of 16 bytes: more than any memory, and far from overflow.
    return n < 0 || n > (std::int64_t{1} << 40) || element_bytes < 0 ? -1 : n * element_bytes;
  }
};

/// S where the record tells it, else -1: the input of an all-gather or gather is one rank's part,
/// and the total needs the output or the group's size.
std::int64_t bytes_of(const CollectiveArgs& c);

/// How an uneven all-to-all cuts its input and output, by rank of the group; in elements or in
/// rows.
struct SplitSizes {
  std::vector<std::int64_t> in, out;
  bool cut = false;  // PyTorch writes 30 items at most
};

/// Times are nanoseconds as written (baseTimeNanoseconds not added).
struct DeviceEvent {
  Span span;
  std::uint64_t correlation = 0, external_id = 0;  // 0: absent
  std::int32_t name = -1;
  std::int32_t args = -1;  // index into KinetoTrace::args
  bool copy = false;
};
/// A record_param_comms operation, or an annotation such as nccl:all_reduce.
struct CommMark {
  Span span;
  std::uint64_t external_id = 0, record_function = 0;  // 0: absent
  std::int64_t tid = 0;
  std::int32_t name = -1;
  std::int32_t args = -1;
};
struct Launch {
  std::uint64_t correlation = 0;
  std::int64_t start_ns = 0;
  std::int64_t tid = 0;
};
struct CpuOp {
  Span span;
  std::int64_t tid = 0;
  std::int64_t sequence = -1;  // autograd sequence number
  std::int64_t elements = -1;  // of all tensor inputs
  std::int32_t name = -1;
  DType dtype = DType::f32;  // of the first tensor input that has one
  bool backward = false;     // carries "Fwd thread id" != 0
};

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
  std::vector<CommMark> marks;
  std::vector<Launch> launches;
  std::vector<CpuOp> ops;
  std::vector<StepSpan> steps;                     // of the host, ascending number
  std::vector<StepSpan> device_steps;              // gpu_user_annotation of the same names
  std::map<std::string, int> unknown_collectives;  // name, records of it
  std::size_t events = 0;
  std::size_t other_device = 0;  // records of accelerators not understood here
  std::size_t without_duration = 0, bad_time = 0, absurd = 0;
  std::vector<std::string> notes;
};

/// Bytes of JSON done so far, by one reader; called every few MB.
using Progress = std::function<void(std::size_t done)>;

/// Throws InputError naming file and place. Mends what real files have broken (json_repair.hpp) and
/// notes it.
KinetoTrace read_kineto(PaddedText text, const std::string& name, const Progress& progress = {});

}  // namespace linerate::trace
