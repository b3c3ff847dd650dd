#include "linerate/torch_adapter/kfac/late_findings.hpp"

#include <ATen/ops/stack.h>

#include <utility>

namespace linerate::torch_adapter {

void LateFindings::note(std::size_t block, doc::FactorSide side, What what,
                        const at::Tensor& failed) {
  noted_.push_back({block, side, what, failed});
}

void LateFindings::send(std::int64_t step, std::vector<at::Tensor> numbers) {
  sent_.push_back({step, numbers.size(), std::exchange(noted_, {})});
  for (Note& note : sent_.back().notes)
    numbers.push_back(std::exchange(note.failed, {}).to(at::kDouble));
  values_.ask(at::stack(numbers));
}

std::optional<LateFindings::Step> LateFindings::take() {
  const std::optional<at::Tensor> come = values_.take();
  if (!come) return std::nullopt;
  const double* value = come->const_data_ptr<double>();
  Step found{sent_.front().step, {value, value + sent_.front().numbers}, {}};
  value += sent_.front().numbers;
  for (const Note& note : sent_.front().notes) {
    int& in_a_row = in_a_row_[{note.block, note.side, note.what}];
    in_a_row = *value++ != 0 ? in_a_row + 1 : 0;
    if (in_a_row > 0) found.findings.push_back({note.block, note.side, note.what, in_a_row});
  }
  sent_.pop_front();
  return found;
}

}  // namespace linerate::torch_adapter
