// "I am alive, and busy for a while". A rank makes a Busy before work that keeps it from the next
// collective for longer than the timeout.
#pragma once

#include <functional>
#include <utility>

namespace linerate::comm {

/// While it exists the rank that made it is not late (Communicator::busy). Moves, and may outlive
/// the communicator.
/// Thread safety: one thread at a time; that may be another than the one that made it.
class [[nodiscard]] Busy {
 public:
  Busy() = default;  // says nothing
  /// Calls `end` once, when the work is done.
  explicit Busy(std::function<void()> end) : end_(std::move(end)) {}
  /// Takes over what `other` says.
  Busy(Busy&& other) noexcept : end_(std::exchange(other.end_, nullptr)) {}
  /// Ends this one, and takes over what `other` says.
  Busy& operator=(Busy&& other) noexcept {
    if (this != &other) {
      finish();
      end_ = std::exchange(other.end_, nullptr);
    }
    return *this;
  }
  ~Busy() { finish(); }

  /// The work is done: from here on the timeout counts again.
  void finish() {
    if (const auto end = std::exchange(end_, nullptr)) end();
  }

 private:
  std::function<void()> end_;
};

}  // namespace linerate::comm
