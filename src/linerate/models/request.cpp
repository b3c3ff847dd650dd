#include "linerate/models/request.hpp"

#include <string>

#include "linerate/core/error.hpp"

namespace linerate::models {

Variant parse_variant(std::string_view name) {
  if (name == "auto") return Variant::automatic;
  if (name == "published") return Variant::published;
  if (name == "small") return Variant::small;
  throw UsageError("--variant: expected auto, published or small, found \"" + std::string(name) +
                   "\"");
}

}  // namespace linerate::models
