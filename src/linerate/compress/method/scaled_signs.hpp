// The compressor of a format of signs: what efsignsgd and onebit are.
#pragma once

#include <memory>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/method/sign_format.hpp"

namespace linerate::compress {

/// One round of the format, with a residual.
std::unique_ptr<const Compressor> scaled_signs(const SignFormat& format);

}  // namespace linerate::compress
