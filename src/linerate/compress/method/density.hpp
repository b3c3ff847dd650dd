// The option density=0.01 of the sparse methods.
#pragma once

#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

/// The share of a tensor's elements that is sent: in (0, 1], by default 0.01. Refuses others.
double read_density(doc::OptionReader& options);

}  // namespace linerate::compress
