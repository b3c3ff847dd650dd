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

/// Finds the arrays that each task reads and writes. A Plan names payloads and not who touches
/// them, so this follows from the Plan's edges:
/// - A collective writes the payload that it moves. An all-to-all reads one payload and writes
///   another.
/// - A task before a collective, or before an encode, writes the payload that the collective or
///   encode takes.
/// - A task after a collective, or after a decode, reads the payload that the collective or decode
///   leaves.
/// - A gradient is written into its bucket by its copy task, or by its backward task if it has no
///   copy.
/// - A decode writes its bucket. Other tasks read the payloads that they name.
///
/// For example `pack` → `all-reduce` → `unpack` over bucket 0: the first writes the bucket, the
/// second writes it, and the third reads it. So the next step's `pack` has to wait for this step's
/// `unpack`, although the Plan has no edge between the two.
///
/// Payloads of several variants that have the same content are one array, which is used from step
/// to step.
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
