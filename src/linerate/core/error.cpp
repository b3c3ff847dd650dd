#include "linerate/core/error.hpp"

namespace linerate {

void check_failed(const char* expression, const std::string& detail, const char* file, int line) {
  throw InternalError(std::string(file) + ":" + std::to_string(line) +
                      ": check failed: " + expression + (detail.empty() ? "" : ": " + detail) +
                      "; this is a bug in linerate, please report it");
}

}  // namespace linerate
