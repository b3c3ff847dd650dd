// What is used of c10d: messages and a store. Only c10d_world.cpp and c10d_tensor_group.cpp include
// its headers, which take seven seconds. Private to comm/c10d.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace linerate::comm {

/// PyTorch's errors go on with a stack.
inline std::string first_line(const char* what) {
  const std::string text = what;
  return text.substr(0, text.find('\n'));
}

/// A message under way; when it is gone, the group touches its memory no more.
class C10dMessage {
 public:
  virtual ~C10dMessage() = default;
  /// Sleeps until it is complete; false if it was aborted. Throws what the back end says of a peer
  /// that is gone. One thread, once.
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
  /// Sets it unless it is there; what stands then.
  virtual std::string set_first(const std::string& key, const std::string& value) = 0;
};

/// The memory of a message is plain bytes wrapped as a tensor that does not own them: its owner
/// keeps it (Payloads::hold, or the caller of a collective). Memory of a device would come as a
/// slice of its tensor, so that streams and the caching allocator know of it: bytes_of() in
/// c10d_world.cpp is the one place that makes tensors.
class C10dGroup {
 public:
  virtual ~C10dGroup() = default;
  /// The same on every rank, of no other group of the job.
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
