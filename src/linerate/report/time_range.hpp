// An interval of times as text.
#pragma once

#include <string>

namespace linerate::report {

/// "76.3 us .. 83.7 us"; if the ends are equal with three digits, with more, up to seven: "128.33
/// ms .. 128.34 ms". Both ends in seconds.
std::string time_range(double low_s, double high_s);

}  // namespace linerate::report
