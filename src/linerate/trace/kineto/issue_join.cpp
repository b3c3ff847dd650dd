// Operators and annotations are both sorted by start. Each operator takes the first annotation from
// its own start on that is free and may be its communication. `first` moves past annotations that
// are taken or too old, so most operators find theirs at once.
#include "linerate/trace/kineto/issue_join.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"

namespace linerate::trace {
namespace {

/// What a back end may run an operation as: Gloo's reduce-scatter and barrier are all-reduces.
bool runs_as(CommOp issued, CommOp ran) {
  if (issued == ran || issued == CommOp::unknown || ran == CommOp::unknown) return true;
  if (ran == CommOp::all_reduce)
    return issued == CommOp::reduce_scatter || issued == CommOp::barrier;
  return false;
}

/// Whether the annotation may be of this operator. It has the size of the array that goes in, the
/// operator those of input and output. An unknown size contradicts nothing.
bool may_be(const CollectiveArgs& issued, const CollectiveArgs& ran) {
  if (!runs_as(issued.op, ran.op)) return false;
  const std::int64_t n = ran.in_elements;
  if (n < 0 || (issued.in_elements < 0 && issued.out_elements < 0)) return true;
  return n == issued.in_elements || n == issued.out_elements;
}

CollectiveArgs args_of(const KinetoTrace& t, std::int32_t args) {
  return args < 0 ? CollectiveArgs{} : t.args[to_index(args)];
}

/// Type and group of the annotation, operation and array sizes of the operator.
void take_operator(const CollectiveArgs& issued, CollectiveArgs& args) {
  if (issued.op != CommOp::unknown) args.op = issued.op;
  if (issued.in_elements >= 0) args.in_elements = issued.in_elements;
  if (issued.out_elements >= 0) args.out_elements = issued.out_elements;
  if (args.element_bytes < 0) args.element_bytes = issued.element_bytes, args.dtype = issued.dtype;
}

}  // namespace

std::vector<HostCommunication> host_communications(const KinetoTrace& t) {
  std::vector<HostCommunication> all;
  for (const CommMark& m : t.marks)
    if (t.names[m.name].host_backend) {
      HostCommunication c{.mark = &m, .args = args_of(t, m.args)};
      if (c.args.op == CommOp::unknown) c.args.op = t.names[m.name].op;
      all.push_back(c);
    }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.mark->span.start_ns < b.mark->span.start_ns;
  });
  std::vector<const CommMark*> operators;
  for (const CommMark& m : t.operators) operators.push_back(&m);
  std::stable_sort(operators.begin(), operators.end(), [](const CommMark* a, const CommMark* b) {
    return a->span.start_ns < b->span.start_ns;
  });
  std::size_t first = 0;  // everything before it is taken, or older than any further operator
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const CollectiveArgs issued = args_of(t, operators[i]->args);
    const std::int64_t start = operators[i]->span.start_ns;
    while (first < all.size() && (all[first].issued >= 0 || all[first].mark->span.start_ns < start))
      ++first;
    for (std::size_t k = first; k < all.size(); ++k)
      if (all[k].issued < 0 && may_be(issued, all[k].args)) {
        all[k].issued = static_cast<std::int64_t>(i);
        all[k].called_ns = start;
        take_operator(issued, all[k].args);
        break;
      }
  }
  return all;
}

}  // namespace linerate::trace
