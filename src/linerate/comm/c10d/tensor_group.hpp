// Collectives on tensors of any device. Private to comm/c10d and torch_adapter.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
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

// The parts of c10d that are used: messages and a store. Only c10d_channel.cpp and
// tensor_group.cpp include c10d's headers, which take seven seconds to compile. Private to
// comm/c10d.

/// The first line of an error of PyTorch's, which goes on with a stack.
inline std::string first_line(const char* what) {
  const std::string text = what;
  return text.substr(0, text.find('\n'));
}

/// A message in flight. When this object is destroyed, the group touches the message's memory no
/// more.
class C10dMessage {
 public:
  virtual ~C10dMessage() = default;
  /// Sleeps until it is complete; false if it was aborted. Throws the back end's error if a peer is
  /// gone. To be called once, by one thread.
  virtual bool wait() = 0;
  /// Any thread.
  virtual void abort() = 0;
};

/// Texts that all ranks see. Every call throws std::exception when the store is gone.
class SharedStore {
 public:
  virtual ~SharedStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The value of a key that exists.
  virtual std::string get(const std::string& key) = 0;
  virtual bool has(const std::string& key) = 0;
  /// Sets the key unless it exists. Returns its value afterwards.
  virtual std::string set_first(const std::string& key, const std::string& value) = 0;
};

/// The memory of a message is plain bytes, wrapped as a tensor that does not own them. Its owner
/// keeps it (Payloads::hold, or the caller of a collective). Only bytes_of() in c10d_channel.cpp
/// makes such tensors. Memory of a device would need a slice of its own tensor there, because
/// streams and the caching allocator track tensors.
class C10dGroup {
 public:
  virtual ~C10dGroup() = default;
  /// A name that is the same on every rank, and no other group's.
  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string backend() const = 0;
  virtual std::unique_ptr<C10dMessage> send(int peer, const void* data, std::size_t bytes,
                                            int tag) = 0;
  virtual std::unique_ptr<C10dMessage> receive(int peer, void* data, std::size_t bytes,
                                               int tag) = 0;
  /// Over a connection of its own; `prefix` stands before each key.
  virtual std::unique_ptr<SharedStore> store(const std::string& prefix) = 0;
};

}  // namespace linerate::comm
