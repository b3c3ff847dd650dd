// What a network is made for: the shapes it gets.
#pragma once

#include <cstdint>
#include <string_view>

#include "linerate/models/description.hpp"

namespace linerate::models {

/// Networks made for 224 pixels have a small variant: a stem of stride 1 without pooling.
enum class Variant : std::uint8_t {
  automatic,
  published,
  small
};  // automatic: small up to 64 pixels
/// "auto", "published", "small". Throws UsageError.
Variant parse_variant(std::string_view name);

/// The shapes a maker gets; both are always set.
struct Request {
  Shape input{};
  std::int64_t classes = 0;  // 0: the published head
  Variant variant = Variant::automatic;

  bool small() const {
    if (variant != Variant::automatic) return variant == Variant::small;
    return input.size() == 3 && input[1] <= 64 && input[2] <= 64;
  }
};

}  // namespace linerate::models
