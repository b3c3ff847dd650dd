// Private: JSON among the lines that launchers write.
#pragma once

#include <string>
#include <string_view>

namespace linerate::bench_logs {

/// The object that begins with the brace at `at`, up to the brace that closes it; to the end if
/// none does.
std::string_view object_at(std::string_view text, std::size_t at);
/// Where the first line begins that opens an object, after its label; npos: none does.
std::size_t first_object(std::string_view text);
/// The first object, without a launcher's labels. The label of its first line is taken off every
/// line that has it. Lines without it are another program's, and dropped.
std::string without_launcher(std::string_view text);

}  // namespace linerate::bench_logs
