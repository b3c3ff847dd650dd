// What is to be placed on ranks, and the result.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "linerate/plan/kfac/channel.hpp"

namespace linerate::plan {

/// In place of an owner: every rank inverts it for itself, and nothing is sent.
inline constexpr std::int32_t kEverywhere = -1;

/// What is placed: inverses, or whole layers.
struct PlacementProblem {
  std::span<const std::int64_t> dims;   // [n]
  std::span<const double> inverse_s;    // [n] on one rank
  std::span<const double> broadcast_s;  // [n] at full speed; empty if nothing is sent
  int ranks = 1;
  double communication_slowdown = 1;  // of broadcasts while any rank computes
  /// [n] whose direction an inverse is for, and the seconds that every rank takes for it once it
  /// has all of its inverses. Empty: they do not count.
  std::span<const std::int32_t> layer{};
  std::span<const double> layer_s{};
  /// What the channel carries before the first broadcast, in its order: sums of factors, gradients.
  std::span<const Transfer> transfers{};
  /// [n] which of them brings what an inverse is made of; negative, empty: that is there.
  std::span<const std::int32_t> after{};
  /// [layers] which of them brings the last of a layer's gradient, likewise.
  std::span<const std::int32_t> gradient_after{};
  double start_s = 0;  // when ranks are free to invert
  /// What travels together: a message of so many elements of so many inverses, at full speed, and
  /// [n] the elements of each. Empty: each travels by itself.
  std::function<double(std::int64_t, std::int64_t)> seconds_of{};
  std::span<const std::int64_t> elements{};
  int columns = 1;  // rank r sends over channel r % columns
};

struct Placement {
  std::vector<std::int32_t> owner;  // [n] a rank, or kEverywhere
  /// All inverses in the order in which ranks work, each rank on those that are its own or
  /// everybody's. They follow the arrivals of their factors: those with an owner first, then the
  /// rest, the longest first among both. Every rank waits for an arrival in the same place, before
  /// the first inverse that needs it. By the authors' threshold they stand as they are numbered,
  /// layer by layer.
  std::vector<std::int32_t> order;
  bool behind_arrivals = false;  // ranks wait for every factor before they begin
  /// Those with an owner in the order in which they are sent; message k holds
  /// sent[ends[k - 1]] .. sent[ends[k] - 1], all of one owner.
  std::vector<std::int32_t> sent, ends;
};

}  // namespace linerate::plan
