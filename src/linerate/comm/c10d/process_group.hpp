// The parts of c10d that are used: messages and a store. Only c10d_world.cpp and
// c10d_tensor_group.cpp include c10d's headers, which take seven seconds to compile. Private to
// comm/c10d.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace linerate::comm {

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
/// keeps it (Payloads::hold, or the caller of a collective). Only bytes_of() in c10d_world.cpp
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
