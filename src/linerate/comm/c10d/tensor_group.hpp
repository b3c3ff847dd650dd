// Collectives on tensors of any device. Private to comm/c10d and torch_adapter.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "linerate/comm/buffer.hpp"

namespace at {
class Tensor;
}

namespace linerate::comm {

/// Each but all_to_all() works in place on a dense array of one dimension, like Communicator's. On
/// a device it is enqueued in the calling thread's current stream, which goes on when the
/// collective has ended. On the CPU it has ended when the call returns. All ranks call in one
/// order. `title` stands in the CommError of a failure.
class TensorGroup {
 public:
  virtual ~TensorGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// array[n] becomes the reduction over ranks.
  virtual void all_reduce(at::Tensor array, Reduce op, const std::string& title) = 0;
  /// Block rank() of array[size * n] becomes that of the reduction; the rest is of no use.
  virtual void reduce_scatter(at::Tensor array, Reduce op, const std::string& title) = 0;
  /// Every block of array[size * n] becomes that of its rank.
  virtual void all_gather(at::Tensor array, const std::string& title) = 0;
  /// Block r of arrived[size * n] becomes block rank() of rank r's sent[size * n].
  virtual void all_to_all(at::Tensor sent, at::Tensor arrived, const std::string& title) = 0;
  /// array[n] becomes that of the root.
  virtual void broadcast(at::Tensor array, int root, const std::string& title) = 0;

  /// These ranks, in this order, as a group of their own; null on a rank that is not among them.
  /// Collective over the whole group. Parts that share no rank may be made at once, each by its own
  /// ranks. A rank in none of them gives the ranks of another part. `name` tells the part from
  /// every other one of the group's, and is the same on its ranks. Throws UsageError, on every
  /// rank, if the back end cannot be split.
  virtual std::unique_ptr<TensorGroup> part(const std::vector<int>& ranks,
                                            const std::string& name) = 0;
};

/// The collectives of the c10d::ProcessGroup of this name, whatever its back end. Throws UsageError
/// if there is none, or none that moves the memory of such a device.
std::unique_ptr<TensorGroup> make_tensor_group(const std::string& group_name, c10::Device device);

/// The first line of an error of PyTorch's, which goes on with a stack.
inline std::string first_line(const char* what) {
  const std::string text = what;
  return text.substr(0, text.find('\n'));
}

}  // namespace linerate::comm
