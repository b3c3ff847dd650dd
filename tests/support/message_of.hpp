// What a call throws, in words.
#pragma once

#include <string>

#include "linerate/core/error.hpp"

namespace linerate::support {

/// The message of an action's error of this type; "no error" if it throws none.
template <typename Error = UsageError, typename Action>
std::string message_of(Action action) {
  try {
    static_cast<void>(action());
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace linerate::support
