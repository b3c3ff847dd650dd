#include "linerate/doc/task.hpp"

#include <string>

#include "linerate/core/error.hpp"

namespace linerate::doc {
namespace {

template <typename Enum, std::size_t N>
Enum find(std::string_view name, const std::array<std::string_view, N>& names, const char* what) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  throw UsageError(std::string("unknown ") + what + " \"" + std::string(name) + "\"");
}

}  // namespace

TaskKind parse_task_kind(std::string_view name) {
  return find<TaskKind>(name, kTaskKindNames, "task kind");
}
Subject parse_subject(std::string_view name) {
  return find<Subject>(name, kSubjectNames, "subject");
}
Resource parse_resource(std::string_view name) {
  return find<Resource>(name, kResourceNames, "resource");
}

}  // namespace linerate::doc
