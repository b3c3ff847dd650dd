// Steps that train several models in turn: each update needs its exchanges, and lies before the
// next turn's backward.
#include "linerate/plan/passes.hpp"

namespace linerate::plan {

// The first backward task of a turn waits for the exchanges of the turn before. An example with
// turns 0 and 1: gradients 0 to 3 belong to turn 0 and 4 to 9 to turn 1. The backward task of
// gradient 4 waits for every bucket of turn 0.
void add_turns(const PassInput& input, StepDraft& step) {
  const std::vector<doc::Gradient>& gradients = input.workload.gradients;
  for (std::size_t p = 1; p < gradients.size(); ++p) {
    if (gradients[p].turn == gradients[p - 1].turn) continue;
    for (std::size_t b = 0; b < step.exchanges.size(); ++b) {
      if (turn_of(input, step, static_cast<std::int32_t>(b)) != gradients[p - 1].turn) continue;
      const BucketExchange& x = step.exchanges[b];
      // What is decoded between computation is there, or comes last in the step.
      const bool on_compute = step.tasks[x.received].resource == doc::Resource::compute;
      step.tasks.wait(step.backward[p], on_compute ? x.receive : x.received);
    }
  }
}

}  // namespace linerate::plan
