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

Collective collective_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::all_reduce:
      return Collective::all_reduce;
    case TaskKind::reduce_scatter:
      return Collective::reduce_scatter;
    case TaskKind::all_gather:
    case TaskKind::all_gather_v:
      return Collective::all_gather;
    case TaskKind::all_to_all:
      return Collective::all_to_all;
    case TaskKind::broadcast:
      return Collective::broadcast;
    default:
      break;
  }
  throw InternalError(std::string("not a collective: ") + std::string(name_of(kind)));
}

}  // namespace linerate::doc
