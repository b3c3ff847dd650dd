// Two kinds of failure: the caller can act (a typed exception with an exit code), or it is a bug
// (LINERATE_CHECK).
#pragma once

#include <stdexcept>
#include <string>

namespace linerate {

/// Base of every error linerate throws. A message says place, expected, found, next step.
class Error : public std::runtime_error {
 public:
  Error(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Wrong option or argument. Exit 2.
struct UsageError : Error {
  explicit UsageError(const std::string& message) : Error(2, message) {}
};
/// A file or document is wrong. `place` is "file", "file:line" or "file: /json/path". Exit 3.
struct InputError : Error {
  InputError(const std::string& place, const std::string& message)
      : Error(3, place + ": " + message) {}
};
/// A collective or a peer failed. Exit 4.
struct CommError : Error {
  explicit CommError(const std::string& message) : Error(4, message) {}
};
/// An accelerator or its driver failed, or is absent. Exit 5.
struct DeviceError : Error {
  explicit DeviceError(const std::string& message) : Error(5, message) {}
};
/// A bug in linerate. Exit 70.
struct InternalError : Error {
  explicit InternalError(const std::string& message) : Error(70, message) {}
};

/// Not std::source_location: clang 14, which builds the fuzzers, has none with this library.
[[noreturn]] void check_failed(const char* expression, const std::string& detail,
                               const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace linerate

/// States an invariant of linerate itself; never used for input. The detail is any std::string
/// expression.
#define LINERATE_CHECK(expression, detail)           \
  do {                                               \
    if (!(expression)) [[unlikely]]                  \
      ::linerate::check_failed(#expression, detail); \
  } while (false)
