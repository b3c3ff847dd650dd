// Private: what the command says, in the words of Python.
#pragma once

#include <string>
#include <string_view>

namespace linerate {

/// A message or a note, with the command's options as Python has them: "--step-time" becomes
/// "step_time=", "--json" becomes "to_dict()", and "linerate calibrate --codecs" becomes
/// "linerate.calibrate(codecs=...)". Options of other programs stay, and so do those of verbs that
/// Python lacks, with the verb before them. A text in Python's words stays as it is.
[[nodiscard]] std::string in_python(std::string_view text);

}  // namespace linerate
