// A table of named things, each with one line of text and its source; that line is its
// documentation everywhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate {

/// One thing with a name, and how it is made.
template <typename Maker>
struct RegistryLine {
  std::string name;    // a word
  Maker make;          // makes it
  std::string line;    // one sentence, printed by `linerate list`
  std::string source;  // paper or specification
};

/// A plain table. It survives static linking, unlike self-registering globals. Lookups of unknown
/// names throw UsageError. Thread safety: any thread may ask once the table is filled; one thread
/// adds lines, before.
template <typename Maker>
class Registry {
 public:
  /// `what` is in errors: "unknown WHAT ...".
  Registry(std::string what, std::vector<RegistryLine<Maker>> lines)
      : what_(std::move(what)), lines_(std::move(lines)) {}

  /// In their order.
  const std::vector<RegistryLine<Maker>>& lines() const { return lines_; }
  /// In the same order.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& l : lines_) all.push_back(l.name);
    return all;
  }
  /// The function that makes the thing of this name. Throws UsageError with the nearest name.
  const Maker& at(std::string_view name) const {
    for (const auto& l : lines_)
      if (l.name == name) return l.make;
    const std::vector<std::string> known = names();
    const std::string near = nearest(name, known);
    throw UsageError("unknown " + what_ + " \"" + std::string(name) + "\"" +
                     (near.empty() ? ";" : "; did you mean \"" + near + "\"?") +
                     " Known: " + join(known, ", "));
  }

 private:
  std::string what_;
  std::vector<RegistryLine<Maker>> lines_;
};

}  // namespace linerate
