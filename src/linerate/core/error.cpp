#include "linerate/core/error.hpp"

namespace linerate {

void check_failed(const char* expression, const std::string& detail, std::source_location where) {
  throw InternalError(std::string(where.file_name()) + ":" + std::to_string(where.line()) +
                      ": check failed: " + expression + (detail.empty() ? "" : ": " + detail) +
                      "; this is a bug in linerate, please report it");
}

}  // namespace linerate
