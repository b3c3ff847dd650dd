// Two kinds of failure. Either the caller can act (a typed exception with an exit code), or it is a
// bug (LINERATE_CHECK). Thread safety: values.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

namespace linerate {

/// Base of every error linerate throws. A message says place, expected, found, next step.
class Error : public std::runtime_error {
 public:
  /// `exit_code` is what a program that ends with this error returns.
  Error(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  /// 2 to 5, or 70: docs/errors.md.
  int exit_code() const { return exit_code_; }
  /// True if every rank of a job throws this same error: then one of them reports it.
  bool on_every_rank() const { return on_every_rank_; }
  /// See on_every_rank() above.
  void set_on_every_rank() { on_every_rank_ = true; }

 private:
  int exit_code_;
  bool on_every_rank_ = false;
};

/// Wrong option or argument. Exit 2.
struct UsageError : Error {
  /// The whole message.
  explicit UsageError(const std::string& message) : Error(2, message) {}
};
/// A file, a document or the job itself is wrong. `place` is "file", "file:line", "file:
/// /json/path" or a part of the job, such as "ranks". Exit 3.
struct InputError : Error {
  /// The message is "place: message".
  InputError(const std::string& place, const std::string& message)
      : InputError(place + ": " + message) {}
  /// For a message that begins with its place.
  explicit InputError(const std::string& message) : Error(3, message) {}
};
/// A collective or a peer failed. Exit 4.
struct CommError : Error {
  /// The whole message.
  explicit CommError(const std::string& message) : Error(4, message) {}
};
/// An accelerator or its driver failed, or is absent. Exit 5.
struct DeviceError : Error {
  /// The whole message.
  explicit DeviceError(const std::string& message) : Error(5, message) {}
};
/// A bug in linerate. Exit 70.
struct InternalError : Error {
  /// The whole message.
  explicit InternalError(const std::string& message) : Error(70, message) {}
};

/// throw on_every_rank(UsageError(...)): the error depends on nothing but what all ranks share.
template <typename E>
[[nodiscard]] E on_every_rank(E error) {
  error.set_on_every_rank();
  return error;
}

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

// The library's messages to people. It never prints if a sink is installed. Without one, warnings
// go to standard error, since a training run that is wrong must not be silent.

namespace linerate::log {

/// The kind of a record: to follow what happens, or to be acted on.
enum class Level { info, warning };
/// Receives records.
using Sink = std::function<void(Level, const std::string&)>;

/// Replaces the sink, from any thread at any time; a record in flight may still reach the sink
/// before. Empty: the default, which writes "linerate: warning: ..." to standard error and drops
/// info.
///
/// Threads call the sink at the same time. If the sink throws, the default writes the record, if it
/// is a warning. If the sink logs itself, the default writes the sink's own record.
void set_sink(Sink sink);
/// Neither throws, so that destructors may warn.
void info(const std::string& message) noexcept;
/// Reports what may be wrong.
void warning(const std::string& message) noexcept;

}  // namespace linerate::log
