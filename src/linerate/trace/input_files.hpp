// The files that a person means by a file, a folder or a pattern.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace linerate::trace {

struct InputFiles {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> notes;  // what was passed over in a folder
};

/// A folder stands for the traces that lie in it (not in folders inside it), by name; a pattern
/// with *, ? or [...] for the files that match, if no file has that very name. Other paths stay as
/// they are, even if nothing is there. Throws InputError if a folder holds no trace or nothing
/// matches.
InputFiles input_files(const std::vector<std::filesystem::path>& paths);

}  // namespace linerate::trace
