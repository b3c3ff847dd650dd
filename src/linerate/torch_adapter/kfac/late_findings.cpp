#include "linerate/torch_adapter/kfac/late_findings.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <utility>

namespace linerate::torch_adapter {

void LateFindings::note(What what, std::vector<std::int32_t> members, const at::Tensor& is_so) {
  noted_.push_back({what, std::move(members), is_so});
}

void LateFindings::send(std::int64_t step, const at::Tensor& q, const at::Tensor& nu) {
  std::vector<at::Tensor> is_so;
  for (Note& note : noted_) is_so.push_back(std::exchange(note.is_so, {}));
  std::vector<at::Tensor> all{at::stack({q, nu})};
  if (!is_so.empty()) all.push_back(at::cat(is_so).to(at::kDouble));
  sent_.push_back({step, std::exchange(noted_, {})});
  values_.ask(at::cat(all));
}

std::optional<LateFindings::Step> LateFindings::take() {
  const std::optional<at::Tensor> come = values_.take();
  if (!come) return std::nullopt;
  const double* value = come->const_data_ptr<double>();
  Step found{.step = sent_.front().step, .q = value[0], .nu = value[1], .findings = {}};
  value += 2;
  for (const Note& note : sent_.front().notes)
    for (const std::int32_t member : note.members) {
      int& in_a_row = in_a_row_[{note.what, member}];
      in_a_row = *value++ != 0 ? in_a_row + 1 : 0;
      if (in_a_row > 0) found.findings.push_back({note.what, member, in_a_row});
    }
  sent_.pop_front();
  return found;
}

}  // namespace linerate::torch_adapter
