#include "linerate/exec/operation.hpp"

#include <algorithm>

namespace linerate::exec {

std::int32_t counts_of(const doc::TaskGraph& graph, std::int32_t payload) {
  const auto at =
      std::find_if(graph.payloads.begin(), graph.payloads.end(), [payload](const doc::Payload& p) {
        return p.content == doc::Content::counts && p.of == payload;
      });
  return at == graph.payloads.end() ? -1 : static_cast<std::int32_t>(at - graph.payloads.begin());
}

std::vector<std::int64_t> Payloads::counts(const doc::TaskGraph& graph, const doc::Task& task) {
  const std::int32_t payload = counts_of(graph, task.first);
  if (payload < 0)
    throw InternalError(graph.name + ": nobody counts the parts of payload " +
                        std::to_string(task.first));
  const comm::Buffer b = buffer(graph, payload);
  const auto* first = static_cast<const std::int64_t*>(b.data);
  return {first, first + b.count.value};
}

}  // namespace linerate::exec
