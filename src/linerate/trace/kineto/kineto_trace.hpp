// Private: what PyTorch's own records say about one collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/core/index.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// The collective metadata of a kernel or of a record_param_comms operation. -1: absent.
struct CollectiveArgs {
  CommOp op = CommOp::unknown;
  bool ignored = false;  // wait, init: no communication
  std::int64_t in_elements = -1, out_elements = -1;
  int element_bytes = -1;
  std::optional<DType> dtype = {};  // absent: unknown
  int group_size = -1;
  std::int32_t group = -1;  // index into KinetoTrace::groups
  std::int64_t sequence = -1;
  std::uint64_t comms_id = 0;  // 0: absent
  std::int32_t splits = -1;    // index into KinetoTrace::splits

  /// S of core/dtype.hpp: elements are per rank, so that the larger side is the total array.
  std::int64_t bytes() const {
    const std::int64_t n = in_elements > out_elements ? in_elements : out_elements;
    // 2^40 elements of 16 bytes: more than any memory, and far from overflow.
    return n < 0 || n > (std::int64_t{1} << 40) || element_bytes < 0 ? -1 : n * element_bytes;
  }
};

/// S of core/dtype.hpp if the record states it, else -1. The input of an all-gather or gather
/// is one rank's part, so the total needs the output or the group's size.
std::int64_t bytes_of(const CollectiveArgs& c);

// Private: the names of a PyTorch trace's events and what each says.

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
  ddp,
  loading,    // the data loader's turn
  optimizer,  // an optimizer's step or zero_grad
};

/// An operator of backward passes whose tensors have the shapes of a layer's input, output and
/// weight.
enum class LayerOperator : std::uint8_t {
  none,
  convolution,  // (gradient of the output, input, weight)
  product,      // (matrix, matrix): the weight's gradient, or the input's
  embedding,    // (gradient of the output, indices)
  batch_norm,   // (gradient of the output, input, weight), or the first two in the other order
  layer_norm,   // (gradient of the output, input, its dimensions, mean, 1 / deviation, weight)
  checkpoint    // (gradient of the output): of a part that runs anew, with a backward pass inside
};

struct NameInfo {
  std::string text;        // as in the file, escapes included
  std::uint64_t hash = 0;  // of the text, equal in all files
  NameKind kind = NameKind::plain;
  CommOp op = CommOp::unknown;  // communication kernels and marks
  LayerOperator layer = LayerOperator::none;
  bool host_backend =
      false;  // comm_mark: gloo and other CPU back ends, whose mark is the communication
  bool suspicious = false;  // sounds like communication, and no library of such names is known
  std::int64_t step = -1;   // ProfilerStep#n
};

/// Distinct names with their meaning. A trace has far fewer names than events, so events keep an
/// index, and each name is examined once.
class NameTable {
 public:
  std::int32_t intern(std::string_view raw);
  const NameInfo& operator[](std::int32_t i) const { return names_[to_index(i)]; }
  std::size_t size() const { return names_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const {
      return std::hash<std::string_view>{}(name);
    }
  };
  std::vector<NameInfo> names_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> index_;
};

// Private: "Input Dims" and "Input type", the arguments of an operator that describe its tensors.

struct TypeFound {
  int bytes = -1;
  std::string_view name;
};

/// "Input Dims": the elements of all tensors in it, [[64, 3, 7, 7], []] -> 9408; innermost lists
/// are shapes. -1 when there is no shape, or when the product leaves 2^62. An empty list inside so
/// many brackets is the shape of a scalar; 0: none is, as arguments that are no tensors have one
/// too.
std::int64_t elements_of_dims(std::string_view list, int scalar_depth = 0);
/// "Input Dims" of one argument, and its type is that of a tensor's elements: [[]], ["float"].
bool is_one_scalar(std::string_view dims, std::string_view types);
/// The same of the first and of the second argument alone, whose lists of tensors may hold scalars;
/// -1 if there is no shape.
std::pair<std::int64_t, std::int64_t> elements_of_first_two(std::string_view list);
using TensorShape = std::vector<std::int64_t>;
/// The shapes of the first `most` arguments; that of a scalar, of a list of tensors and of what is
/// no tensor is empty. Empty if a number is none.
std::vector<TensorShape> shapes_of_first(std::string_view list, std::size_t most);
/// -1 beyond 2^40; 1 for a scalar.
std::int64_t elements_of(const TensorShape& shape);
/// "Input type": the first that is an element type, ["TensorList", "float"] -> 4 bytes.
TypeFound first_element_type(std::string_view list);

// Private: one rank's PyTorch/Kineto Chrome trace, as read; kineto_job.cpp makes a rank of it.

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
