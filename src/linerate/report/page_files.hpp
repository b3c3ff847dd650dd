// Style sheet and script of the page: page.css and page.js as they stood when the build was
// configured.
#pragma once

#include <string_view>

namespace linerate::report {

extern const std::string_view kPageStyle, kPageScript;

}  // namespace linerate::report
