// Between LibTorch's tensors and the arrays of a checkpoint, and between rank 0's files and all
// ranks. Rank 0 alone reads and writes: other ranks may be on machines that do not have the folder.
#include "linerate/zoo/tensor_arrays.hpp"

#include <ATen/ops/empty.h>

#include <cstring>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/element_type.hpp"

namespace linerate::zoo {
namespace {

/// The element type of a tensor in a checkpoint.
DType dtype_of(const at::Tensor& tensor) {
  const auto type = torch_adapter::dtype_of(tensor.scalar_type());
  if (type == DType::f32 || type == DType::f64 || type == DType::i64) return *type;
  check_failed("f32, f64 or i64", "a checkpoint holds no other types");
}

// Sends a text of any length from rank 0: its size first. Collective.
void broadcast(comm::Communicator& communicator, std::string& text) {
  auto size = static_cast<std::int64_t>(text.size());
  communicator.broadcast(comm::buffer(size), 0, "size of the checkpoint")->wait();
  text.resize(to_index(size));
  if (size > 0) communicator.broadcast(comm::buffer(text), 0, "checkpoint")->wait();
}

}  // namespace

// The array points into the tensor's memory; the keeper holds the tensor until the checkpoint is
// written.
Array ArrayKeeper::array(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor& flat = kept_.emplace_back(tensor.detach().contiguous());
  return {name,
          dtype_of(flat),
          flat.sizes().vec(),
          {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()}};
}

at::Tensor tensor_of(const Array& array) {
  // Memory inside a file's text is not aligned: a copy is.
  const at::Tensor copy = at::empty(array.shape, torch_adapter::scalar_type(array.dtype));
  std::memcpy(copy.mutable_data_ptr(), array.bytes.data(), array.bytes.size());
  return copy;
}

// Three messages: whether the file exists, an error or none, and the content. Every rank takes the
// same way through them, so an error of rank 0 leaves nobody waiting.
std::optional<std::string> read_for_all(comm::Communicator& communicator,
                                        const std::filesystem::path& file) {
  std::string content, error;
  std::int64_t there = 0;
  if (communicator.rank() == 0 && std::filesystem::exists(file)) {
    const comm::Busy busy = communicator.busy("reading a checkpoint");
    there = 1;
    try {
      content = read_file(file);
    } catch (const InputError& e) {
      error = e.what();
    }
  }
  communicator.broadcast(comm::buffer(there), 0, "is there a checkpoint")->wait();
  if (there == 0) return std::nullopt;
  broadcast(communicator, error);
  if (!error.empty()) throw on_every_rank(InputError(error));
  broadcast(communicator, content);
  return content;
}

void save_measurement(const Measurement::Result& result, const TrainOptions& options) {
  doc::Timeline timeline = result.timeline;
  timeline.source = options.source;
  timeline.workload = result.workload.name;
  timeline.strategy = options.strategy;
  doc::Workload workload = result.workload;
  workload.source = options.source;
  // A run with K-FAC has no strategy that others are to be compared with: they take other steps.
  if (timeline.ranks > 1 && !plan::kfac_of(doc::parse_strategy(options.strategy))) {
    workload.current = options.strategy;
    workload.recorded = doc::RecordedStep{result.recorded_step_s, timeline.ranks};
  }
  std::filesystem::path beside = options.record;
  beside.replace_extension(".workload.json");
  save(timeline, options.record);
  save(workload, beside);
}

}  // namespace linerate::zoo
