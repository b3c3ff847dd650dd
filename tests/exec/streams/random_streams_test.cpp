// Random Plans on streams: groups of ranks, warm-up, edges into the next step, payloads that
// several tasks share, observed tasks, many inverses, operations that the host has to look at.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "exec/streams/stream_jobs.hpp"

namespace linerate::support {
namespace {

constexpr int kStreamSteps = 4;

void add_payloads(Random& random, doc::TaskGraph& graph) {
  const auto count = 1 + random.below(4);
  for (std::uint64_t p = 0; p < count; ++p) {
    doc::Payload payload;
    payload.content = doc::Content::encoded;
    payload.elements = payload.padded = static_cast<std::int64_t>(1 + p);
    graph.payloads.push_back(payload);
  }
  for (doc::Task& task : graph.tasks) {
    if (random.below(3) == 0) continue;
    task.subject = doc::Subject::payloads;
    task.first = task.last = static_cast<std::int32_t>(random.below(count));
  }
}

/// Operation 0 is one whose result the host reads, 1 the average of a factor; `inverts`: most
/// computations are such averages or inverses.
void add_kinds(Random& random, doc::TaskGraph& graph, bool host_reads, bool inverts) {
  for (doc::Task& task : graph.tasks) {
    if (inverts && !is_communication(task.kind) && random.below(4)) {
      task.resource = doc::Resource::compute;
      if (random.below(3))
        task.kind = doc::TaskKind::inverse;
      else
        task.operation = 1;
    }
    if (task.resource == doc::Resource::compute && random.below(inverts ? 6 : 2) == 0)
      task.origin = doc::Origin::observed;
    else if (task.kind == doc::TaskKind::inverse)
      task.seconds = random.unit();
    else if (task.resource == doc::Resource::codec || task.resource == doc::Resource::compute)
      task.kind = random.below(2) ? doc::TaskKind::decode : task.kind;
    if (host_reads && !is_communication(task.kind) && random.below(4) == 0) task.operation = 0;
  }
}

std::shared_ptr<const doc::Plan> random_stream_plan(std::uint64_t seed, bool host_reads) {
  Random random(seed);
  doc::Plan plan = random_plan(random, static_cast<int>(1 + random.below(4)));
  plan.operations = {{"clip", {}}, {"average-factors", {}}};
  for (doc::TaskGraph& graph : plan.variants) {
    add_payloads(random, graph);
    add_kinds(random, graph, host_reads, seed / 8 % 2 == 0);
  }
  doc::validate(plan);
  return std::make_shared<const doc::Plan>(std::move(plan));
}

StreamJob random_job(std::uint64_t seed) {
  return enqueue_steps(random_stream_plan(seed, seed % 4 == 3), kStreamSteps,
                       seed % 2 ? Order::of_its_own : Order::of_the_plan, seed);
}

TEST(RandomStreams, EveryTaskBeginsAfterWhatItWaitsFor) {
  constexpr std::uint64_t kPlans = 10000;
  std::int64_t tasks = 0, waits = 0;
  for (std::uint64_t seed = 0; seed < kPlans; ++seed) {
    const StreamJob job = random_job(seed);
    const SimulatedDevices devices(job, seed);
    ASSERT_EQ(devices.error(), "") << "seed " << seed;
    tasks += devices.tasks();
    for (const exec::StreamCounts& counts : job.counts) waits += counts.waits;
  }
  fmt::print("{} random plans: {} tasks, {} waits of streams\n", kPlans, tasks, waits);
}

TEST(RandomStreams, EveryWaitIsNeeded) {
  constexpr std::uint64_t kPlans = 300;
  int left_out = 0;
  for (std::uint64_t seed = 0; seed < kPlans; ++seed) {
    const StreamJob job = random_job(seed);
    for (int r = 0; r < job.plan->ranks; ++r)
      for (const Tampering& wait : waits_of(job, r)) {
        ++left_out;
        ASSERT_NE(error_without(job, wait, seed), "")
            << "seed " << seed << ", rank " << r << ", call " << wait.left_out;
      }
  }
  fmt::print("{} waits left out, one by one\n", left_out);
  EXPECT_GT(left_out, 10000);
}

}  // namespace
}  // namespace linerate::support
