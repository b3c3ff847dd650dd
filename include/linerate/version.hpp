// Which linerate this is.
#pragma once

#include <string_view>

/// For #if: in versions that begin with 0, the second number changes when the interface does.
#define LINERATE_VERSION_MAJOR 0
#define LINERATE_VERSION_MINOR 1
#define LINERATE_VERSION_PATCH 0

namespace linerate {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace linerate
