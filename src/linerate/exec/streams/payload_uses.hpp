// Which arrays the tasks of a Plan read and write.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::exec {

struct PayloadUse {
  std::int32_t array = 0;
  bool writes = false;  // else it only reads
};

/// A Plan names payloads, not who touches them; that follows from its edges. A collective writes
/// the payload that it moves (an all-to-all reads one and writes another). A task before it, or
/// before an encode, writes what that one takes; a task after it, or after a decode, reads what
/// that one leaves. Besides, gradients go into their bucket by their copy, or by backward if there
/// is none, a decode writes its bucket, and others read what they are about.
///
/// Payloads of several variants that hold the same are one array, used from step to step.
class PayloadUses {
 public:
  explicit PayloadUses(const doc::Plan& plan);

  std::span<const PayloadUse> of(std::int32_t variant, std::uint32_t task) const {
    const Variant& v = variants_[to_index(variant)];
    return {v.uses.data() + v.begin[task], v.uses.data() + v.begin[task + 1]};
  }
  /// How many there are, and their bytes, padding included.
  std::size_t count() const { return bytes_.size(); }
  std::int64_t bytes(std::int32_t array) const { return bytes_[to_index(array)]; }

 private:
  struct Variant {
    std::vector<std::uint32_t> begin;  // [tasks + 1], into uses
    std::vector<PayloadUse> uses;
  };

  std::vector<Variant> variants_;
  std::vector<std::int64_t> bytes_;
};

}  // namespace linerate::exec
