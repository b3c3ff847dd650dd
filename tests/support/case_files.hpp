// Cases of tests in files: what is given and what is expected of it, as texts.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace linerate {

/// A case: a line "%% case NAME", remarks and options below it, then its parts. A line "%% TITLE"
/// begins each part. An empty line stands before the next case.
struct FileCase {
  std::string name;
  std::vector<std::pair<std::string, std::string>> parts = {};  // title, lines below it

  /// Empty: there is none of this title. What stands below the name has the title "".
  std::string part(std::string_view title) const {
    const auto found = std::ranges::find(parts, title, [](const auto& p) { return p.first; });
    return found == parts.end() ? "" : found->second;
  }
};
inline void PrintTo(const FileCase& c, std::ostream* out) { *out << c.name; }

/// Those of all files of a folder. The text of a part with "(cut)" in its title has no line break
/// at its end.
inline std::vector<FileCase> cases_in(const std::filesystem::path& folder) {
  std::vector<FileCase> cases;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("%% case "))
        cases.push_back({.name = line.substr(8), .parts = {{"", ""}}});
      else if (line.starts_with("%% "))
        cases.back().parts.emplace_back(line.substr(3), "");
      else
        cases.back().parts.back().second += line + "\n";
  }
  for (FileCase& c : cases) {
    if (std::string& last = c.parts.back().second; last == "\n" || last.ends_with("\n\n"))
      last.pop_back();
    for (auto& [title, text] : c.parts)
      if (const std::size_t cut = title.find(" (cut)"); cut != std::string::npos)
        title.resize(cut), text.pop_back();
  }
  std::ranges::sort(cases, {}, &FileCase::name);
  return cases;
}

}  // namespace linerate
