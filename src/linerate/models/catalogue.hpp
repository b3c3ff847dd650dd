// What a network is made for: the shapes it gets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "linerate/core/registry.hpp"
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

// The known networks by name.

/// What `--input` and `--classes` say; absent: the published network (`default_input`).
struct Options {
  std::optional<Shape> input{};
  std::optional<std::int64_t> classes{};
  Variant variant = Variant::automatic;
};

struct Maker {
  Description (*make)(const Request&);
  const char* default_input = "3x224x224";  // as --input says it
  std::int64_t default_classes = 1000;
};

/// `linerate list models`; --model and zoo:NAME look up here.
const Registry<Maker>& catalogue();

/// Throws UsageError for an unknown name, or an input that the network cannot take.
Description describe(std::string_view name, const Options& options = {});

}  // namespace linerate::models
