// What this rank has begun with each other rank. Two ranks that agree have the same count and the
// same history of each other, so a message can say what it belongs to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/core/hash.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {

class Turns {
 public:
  explicit Turns(int ranks)
      : begun_(to_index(ranks)), history_(to_index(ranks), kHashStart), before_(history_) {}

  /// One more collective, of this kind (Fingerprint::kind), with each of these ranks.
  void begin(std::span<const int> members, std::uint64_t kind) {
    for (const int r : members) {
      const auto i = to_index(r);
      ++begun_[i];
      before_[i] = history_[i];
      history_[i] = hash_value(kind, history_[i]);
    }
  }
  /// The last one was compared and refused, by all of these ranks alike: it never was.
  void take_back(std::span<const int> members) {
    for (const int r : members) history_[to_index(r)] = before_[to_index(r)];
  }

  /// By rank: collectives with it.
  std::span<const std::uint64_t> begun() const { return begun_; }
  std::uint64_t begun(int rank) const { return begun_[to_index(rank)]; }
  /// A hash of the kinds of all of them, in their order.
  std::uint64_t history(int rank) const { return history_[to_index(rank)]; }

 private:
  std::vector<std::uint64_t> begun_, history_, before_;
};

}  // namespace linerate::comm
