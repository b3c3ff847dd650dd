// What makes two runs the same run. It is compared over ranks before the first step, and with a
// checkpoint on --resume. No LibTorch here.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace linerate::zoo {

enum class OnResume {
  same,   // changes results: another value is refused
  noted,  // changes roundings, or what dropout and batch norm see: people are told
  free    // changes neither; ranks must agree on it since it says which collectives they run
};

/// One property of a run. Numbers are written so that they read back exactly.
struct Setting {
  std::string key;
  std::string value;
  std::string option;  // that sets it: "--lr"
  OnResume on_resume = OnResume::same;
};
using Settings = std::vector<Setting>;

/// "key value", one a line, for comm::require_same.
std::vector<std::string> lines_of(const Settings& settings);

/// Those a checkpoint keeps: all but the free ones.
std::map<std::string, std::string> kept(const Settings& settings);

/// Notes for people who resume with `now` from a checkpoint that was written with `then`; `place`
/// names its file. Includes keys that an older checkpoint lacks. Throws UsageError with every
/// setting that must not change and did.
std::vector<std::string> notes_on_resume(const Settings& now,
                                         const std::map<std::string, std::string>& then,
                                         const std::string& place);

}  // namespace linerate::zoo
