// The strategies by name, as `linerate list strategies` prints them, and their traits. Nothing
// outside this registry compares a strategy's name.
#pragma once

#include <string_view>
#include <vector>

#include "linerate/core/registry.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/traits.hpp"

namespace linerate::plan {

const Registry<ExchangeEntry>& exchanges();

/// What may follow an exchange after '+'.
enum class Extra { codec, compressor, automatic, curvature };
struct ExtraEntry {
  Extra extra;
  Traits traits;
};
/// K-FAC, the codec that its numbers alone describe, then the compressors, the user's own included.
const Registry<ExtraEntry>& extras();
/// The name of Extra::codec.
inline constexpr std::string_view kCodec = "codec";
/// The name of Extra::automatic.
inline constexpr std::string_view kAuto = "auto";
/// The name of Extra::curvature.
inline constexpr std::string_view kKfac = "kfac";
/// Whether a component after '+' is this one.
bool is(const doc::Component& component, Extra extra);

}  // namespace linerate::plan
