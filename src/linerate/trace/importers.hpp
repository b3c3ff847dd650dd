// Every format that linerate knows, and which of them a file is in: by its first bytes alone, never
// by its name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "linerate/trace/importer/importer.hpp"

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

}  // namespace linerate::trace
