// What is said in notes.
#pragma once

#include <gmock/gmock.h>

#include <string>

namespace linerate {

/// Matches notes of which one has these words.
inline auto says(const std::string& words) { return testing::Contains(testing::HasSubstr(words)); }

}  // namespace linerate
