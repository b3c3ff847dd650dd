// Private: the names of a PyTorch trace's events and what each says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/trace/job/comm_op.hpp"

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

}  // namespace linerate::trace
