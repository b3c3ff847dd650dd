// Memory for payloads whose content is never read: one array for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "linerate/exec/operation.hpp"

namespace linerate::exec {

/// Zeros, as many as the Plan's largest payload holds.
///
/// A communicator runs the collectives of a rank one after the other, in the order of submission.
/// It touches the memory of a collective only while that collective runs. So all payloads can share
/// one array, also those that are queued and those of steps that are open at once. An all-to-all
/// reads one payload and writes another, so results of all-to-alls have a second array. Sums of
/// zeros stay zeros, so no value overflows however often the array is reduced.
class PayloadArena : public Payloads {
 public:
  explicit PayloadArena(std::shared_ptr<const doc::Plan> plan);

  comm::Buffer buffer(const doc::TaskGraph& graph, std::int32_t payload) override;
  std::shared_ptr<const void> hold(const doc::TaskGraph&, std::int32_t) override { return memory_; }
  /// Parts as equal as they can be, the first ones larger.
  std::vector<std::int64_t> counts(const doc::TaskGraph& graph, const doc::Task& task) override;

  std::int64_t bytes() const { return first_bytes_ + second_bytes_; }

 private:
  std::shared_ptr<const doc::Plan> plan_;
  std::vector<std::vector<bool>> is_second_;  // [variants][payloads]
  std::int64_t first_bytes_ = 0, second_bytes_ = 0;
  std::shared_ptr<std::byte> memory_;
};

/// `bytes` zeros at an address that stays, in large pages if the system has them.
std::shared_ptr<std::byte> zeros(std::int64_t bytes);

}  // namespace linerate::exec
