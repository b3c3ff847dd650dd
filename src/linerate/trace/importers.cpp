// The list of importers. A format registers itself by a function in its folder, and its position in
// the list says who is asked first.
#include "linerate/trace/importers.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <iterator>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/input/input_file.hpp"

// The formats, a folder each. The first importer that knows a file reads it: PyTorch's come last,
// as any other JSON may be a PyTorch trace.
#define LINERATE_IMPORTERS(FOLDER) \
  FOLDER(timeline)                 \
  FOLDER(chakra)                   \
  FOLDER(per_gradient)             \
  FOLDER(not_read)                 \
  FOLDER(horovod)                  \
  FOLDER(kineto)

namespace linerate::trace {

#define LINERATE_DECLARE(folder) std::vector<Importer> folder##_importers();
LINERATE_IMPORTERS(LINERATE_DECLARE)
#undef LINERATE_DECLARE

namespace {

std::vector<Importer> all_importers() {
  std::vector<Importer> all;
  const auto add = [&all](const std::vector<Importer>& some) {
    all.insert(all.end(), some.begin(), some.end());
  };
#define LINERATE_ADD(folder) add(folder##_importers());
  LINERATE_IMPORTERS(LINERATE_ADD)
#undef LINERATE_ADD
  all.push_back({.name = "unknown",
                 .matches = [](const Head&) { return true; },
                 .advice = "expected a PyTorch, Horovod or Chakra trace or a linerate timeline, "
                           "found none of them"});
  return all;
}

}  // namespace

const std::vector<Importer>& importers() {
  static const std::vector<Importer> all = all_importers();
  return all;
}

/// The last one matches all.
Recognised recognise(std::string_view head) {
  const Head first(head);
  const Importer& importer =
      *std::ranges::find_if(importers(), [&first](const Importer& i) { return i.matches(first); });
  return {&importer, importer.is_sure == nullptr || importer.is_sure(first)};
}

bool is_trace(std::string_view head) {
  const auto [importer, sure] = recognise(head);
  return sure && importer->read != nullptr;
}

std::string advice_for(const Importer& importer, const std::string& file) {
  return fmt::format(fmt::runtime(importer.advice), fmt::arg("file", file));
}

// Paths of a user become files. In a folder only files with the head of a trace are taken, and a
// note names the others. A path that exists is never read as a pattern, since file names may have
// brackets.

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
  std::ranges::sort(traces);
  std::ranges::sort(others);
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
