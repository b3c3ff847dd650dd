#include "linerate/doc/task.hpp"

#include <string>

#include "linerate/core/error.hpp"

namespace linerate::doc {

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
