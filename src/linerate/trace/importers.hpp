// Every format that linerate knows, and which of them a file is in: by its first bytes alone, never
// by its name.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/trace/importer/importer.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// In the order in which they are asked. The last is for unknown files.
const std::vector<Importer>& importers();

struct Recognised {
  const Importer* importer = nullptr;
  bool sure = false;  // false: JSON that could be anything
};
/// `head`: InputFile::head().
Recognised recognise(std::string_view head);
/// Does the head say that load_job() reads the file?
bool is_trace(std::string_view head);
/// What to do with a file that `explain` does not read.
std::string advice_for(const Importer& importer, const std::string& file);

// The files that a person means by a file, a folder or a pattern.

struct InputFiles {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> notes;  // what was passed over in a folder
};

/// A folder stands for the traces that lie in it (not in folders inside it), by name; a pattern
/// with *, ? or [...] for the files that match, if no file has that very name. Other paths stay as
/// they are, even if nothing is there. Throws InputError if a folder holds no trace or nothing
/// matches.
InputFiles input_files(const std::vector<std::filesystem::path>& paths);

// Opened files as one job, for tests and fuzzing; load.hpp is for everybody else.

Job read_job(std::span<InputFile> inputs);
inline Job read_job(InputFile& input) { return read_job({&input, 1}); }

}  // namespace linerate::trace
