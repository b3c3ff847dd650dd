#include "linerate/trace/job/job.hpp"

#include <algorithm>
#include <numeric>

#include "linerate/doc/exposed_communication.hpp"

namespace linerate::trace {

std::int32_t group_index(Job& job, const std::string& group) {
  const auto at = std::find(job.groups.begin(), job.groups.end(), group) - job.groups.begin();
  if (at == std::ssize(job.groups)) job.groups.push_back(group);
  return static_cast<std::int32_t>(at);
}

void sort_by_start(std::vector<Communication>& communications) {
  std::stable_sort(communications.begin(), communications.end(),
                   [](const Communication& a, const Communication& b) {
                     return a.span.start_ns < b.span.start_ns;
                   });
}

std::vector<std::size_t> in_order_of_issue(const RankActivity& rank) {
  const std::vector<Communication>& all = rank.communications;
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (std::all_of(all.begin(), all.end(), [](const Communication& c) { return c.issued >= 0; }))
    std::stable_sort(order.begin(), order.end(), [&all](std::size_t a, std::size_t b) {
      return all[a].issued < all[b].issued;
    });
  return order;
}

std::string StepSpan::label() const {
  return marks.empty() ? std::to_string(number)
                       : std::to_string(number) + "-" + std::to_string(marks.back().number);
}

/// If times of the device are unknown, a step lasts until the mark of the next one, if that follows
/// in number. A loader works between two marks, and its time belongs to the step before it.
std::vector<Span> windows_of_steps(const RankActivity& rank) {
  std::vector<Span> windows;
  for (std::size_t i = 0; i < rank.steps.size(); ++i) {
    const StepSpan& step = rank.steps[i];
    const bool followed =
        i + 1 < rank.steps.size() && rank.steps[i + 1].number == step.next_number();
    windows.push_back(step.on_device.value_or(doc::window_of_step(
        step.span, followed ? std::optional(rank.steps[i + 1].span) : std::nullopt)));
  }
  return windows;
}

}  // namespace linerate::trace
