#include "linerate/zoo/run_settings.hpp"

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::zoo {

std::vector<std::string> lines_of(const Settings& settings) {
  std::vector<std::string> lines;
  for (const Setting& s : settings) lines.push_back(s.key + " " + s.value);
  return lines;
}

std::map<std::string, std::string> kept(const Settings& settings) {
  std::map<std::string, std::string> values;
  for (const Setting& s : settings)
    if (s.on_resume != OnResume::free) values[s.key] = s.value;
  return values;
}

// All settings that differ are told at once, so that one attempt is enough to see them.
std::vector<std::string> notes_on_resume(const Settings& now,
                                         const std::map<std::string, std::string>& then,
                                         const std::string& place) {
  std::vector<std::string> refused, noted, absent;
  for (const Setting& s : now) {
    const auto old = then.find(s.key);
    if (s.on_resume == OnResume::free) continue;
    if (old == then.end())
      absent.push_back(s.key);
    else if (old->second != s.value)
      (s.on_resume == OnResume::same ? refused : noted)
          .push_back(s.key + " " + old->second + ", this run asks for " + s.value + " (" +
                     s.option + ")");
  }
  const std::string written = place + " was written with ";
  if (!refused.empty())
    throw UsageError("--resume: " + written + join(refused, "; ") +
                     ". Resume with the options it was written with, or start anew with another "
                     "--checkpoint folder");
  std::vector<std::string> notes;
  if (!noted.empty()) notes.push_back("note: " + written + join(noted, "; "));
  if (!absent.empty())
    notes.push_back("note: " + place + " is of an older linerate, which did not write down " +
                    join(absent, ", ") + ": make sure that they are as they were");
  return notes;
}

}  // namespace linerate::zoo
