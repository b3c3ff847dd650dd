// The exchanges and extras by name: what `linerate list strategies` prints.
#pragma once

#include "linerate/core/registry.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::plan {

const Registry<ExchangeMaker>& exchanges();

/// What may follow an exchange behind '+'.
enum class Extra { codec };
const Registry<Extra>& extras();

}  // namespace linerate::plan
