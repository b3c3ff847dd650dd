// Paths of a user become files. In a folder only files with the head of a trace are taken, and a
// note names the others. A path that exists is never read as a pattern, since file names may have
// brackets.
#include "linerate/trace/input_files.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/input/input_file.hpp"

namespace linerate::trace {
namespace {

namespace fs = std::filesystem;

bool is_trace_file(const fs::path& file) {
  try {
    return is_trace(InputFile::open(file).head());
  } catch (const Error&) {
    return false;
  }
}

void add_folder(const fs::path& folder, InputFiles& out) {
  std::vector<fs::path> traces;
  std::vector<std::string> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name.starts_with('.')) continue;
    if (is_trace_file(entry.path()))
      traces.push_back(entry.path());
    else
      others.push_back(name);
  }
  if (traces.empty())
    throw InputError(folder.string(),
                     fmt::format("expected traces in this folder, found none in {} files; name the "
                                 "folder that holds them",
                                 others.size()));
  std::sort(traces.begin(), traces.end());
  std::sort(others.begin(), others.end());
  out.files.insert(out.files.end(), traces.begin(), traces.end());
  if (others.empty()) return;
  constexpr std::size_t kShown = 4;
  const std::size_t count = others.size();
  if (count > kShown) others.resize(kShown);
  out.notes.push_back(fmt::format(
      "{}: left out, because they are not traces: {}{}", folder.string(), join(others, ", "),
      count > kShown ? fmt::format(" and {} more", count - kShown) : ""));
}

void add_matches(const fs::path& pattern, InputFiles& out) {
  glob_t found{};
  const int status = glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<fs::path> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (status != 0 || files.empty())
    throw InputError(pattern.string(), "no file matches this pattern");
  for (const fs::path& file : files)
    if (fs::is_directory(file))
      add_folder(file, out);
    else
      out.files.push_back(file);
}

}  // namespace

InputFiles input_files(const std::vector<fs::path>& paths) {
  InputFiles out;
  for (const fs::path& path : paths)
    if (fs::is_directory(path))
      add_folder(path, out);
    else if (!fs::exists(path) && path.string().find_first_of("*?[") != std::string::npos)
      add_matches(path, out);
    else
      out.files.push_back(path);
  return out;
}

}  // namespace linerate::trace
