#include "linerate/plan/fuse_turns.hpp"

#include <algorithm>

namespace linerate::plan {
namespace {

void fuse(const Exchange& exchange, const FusionInput& input, bool first_step, const Fusion& out) {
  if (first_step)
    exchange.fuse_first_step(input, out);
  else
    exchange.fuse(input, out);
}

}  // namespace

// A step that trains several models in turn (a GAN: the discriminator, then the generator) updates
// each model before the next one's backward pass. So the exchange cuts each turn's gradients as if
// they were a Workload of their own. Positions are then moved to those of the whole list. With 4
// gradients in turn 0 and 6 in turn 1, position 2 of turn 1 becomes position 6.
void fuse_turns(const Exchange& exchange, const FusionInput& input, bool first_step,
                const Fusion& out) {
  const std::vector<doc::Gradient>& all = input.workload.gradients;
  const int turns = input.workload.turns();
  if (turns == 1) return fuse(exchange, input, first_step, out);
  doc::Workload one = input.workload;
  for (int turn = 0; turn < turns; ++turn) {
    const auto mine = std::ranges::equal_range(all, turn, {}, &doc::Gradient::turn);
    one.gradients.assign(mine.begin(), mine.end());
    doc::TaskGraph graph;
    std::vector<double> not_before;
    const auto prepared = exchange.prepare(one);
    fuse(exchange, {one, input.cost, input.form, input.ranks, prepared.get()}, first_step,
         {graph, not_before});
    const auto members = static_cast<std::int32_t>(out.graph.members.size());
    const auto position = static_cast<std::int32_t>(mine.begin() - all.begin());
    for (const std::int32_t m : graph.members) out.graph.members.push_back(position + m);
    for (doc::Payload bucket : graph.payloads) {
      bucket.begin += members, bucket.end += members;
      out.graph.payloads.push_back(bucket);
    }
    out.not_before.insert(out.not_before.end(), not_before.begin(), not_before.end());
  }
}

}  // namespace linerate::plan
