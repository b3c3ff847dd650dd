#include "linerate/exec/step_executor.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "exec/fake_communicator.hpp"
#include "linerate/comm/thread/run_ranks.hpp"

namespace linerate::exec {
namespace {

using doc::Origin;
using doc::Plan;
using doc::Resource;
using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Gradients 0..n-1, one element each; buckets of `sizes` gradients, one all-reduce a bucket.
TaskGraph exchange_graph(const std::string& name, const std::vector<int>& sizes) {
  TaskGraph graph;
  graph.name = name;
  std::int32_t position = 0;
  for (const int size : sizes) {
    const std::int32_t begin = position;
    std::uint32_t last = 0;
    for (int i = 0; i < size; ++i, ++position) {
      graph.members.push_back(position);
      last = graph.add({.kind = TaskKind::backward,
                        .origin = Origin::observed,
                        .resource = Resource::compute,
                        .first = position,
                        .last = position});
    }
    const auto bucket = static_cast<std::int32_t>(graph.buckets.size());
    graph.buckets.push_back({begin, position, DType::f32, size});
    graph.add({.kind = TaskKind::all_reduce,
               .resource = Resource::network,
               .first = bucket,
               .last = bucket,
               .bytes = 4 * size},
              last);
  }
  return graph;
}

std::shared_ptr<Plan> plan_of(int ranks, std::vector<TaskGraph> variants, int gradients) {
  auto plan = std::make_shared<Plan>();
  plan->strategy = "test";
  plan->ranks = ranks;
  plan->variants = std::move(variants);
  for (int g = 0; g < gradients; ++g) plan->gradient_names.push_back("g" + std::to_string(g));
  return plan;
}

/// One float a gradient, in member order of the graph.
struct FloatPayloads : Payloads {
  std::vector<float> values;
  std::vector<std::int32_t> arrivals;
  comm::Buffer buffer(const TaskGraph& graph, const Task& task) override {
    const doc::Bucket& bucket = graph.buckets[static_cast<std::size_t>(task.first)];
    return {values.data() + bucket.begin, {bucket.elements}, DType::f32};
  }
  void arrived(const TaskGraph&, const Task& task) override { arrivals.push_back(task.first); }
};

/// Notes which task ran.
struct Noting : Operation {
  std::vector<std::string>* log;
  explicit Noting(std::vector<std::string>& into) : log(&into) {}
  void run(const TaskGraph&, const Task& task) override {
    log->push_back(std::string(name_of(task.kind)) + " " + std::to_string(task.first));
  }
};

/// An executor over a fake communicator and 3 gradients, submissions of its set-up forgotten.
struct Fixture {
  FakeCommunicator communicator;
  FloatPayloads payloads;
  StepExecutor executor{communicator, payloads};
  explicit Fixture(std::vector<TaskGraph> variants, std::vector<std::int32_t> cycle = {0},
                   int gradients = 3) {
    payloads.values.resize(static_cast<std::size_t>(gradients));
    auto plan = plan_of(1, std::move(variants), gradients);
    plan->cycle = std::move(cycle);
    executor.set_plan(plan);
    communicator.submitted.clear();
    communicator.works.clear();
  }
};

TEST(StepExecutor, SumsEveryBucketOverRanks) {
  comm::run_ranks(3, [](comm::Communicator& communicator) {
    FloatPayloads payloads;
    StepExecutor executor(communicator, payloads);
    executor.set_plan(plan_of(3, {exchange_graph("steady", {2, 1})}, 3));
    for (int step = 0; step < 3; ++step) {
      const float r = static_cast<float>(communicator.rank() + step);
      payloads.values = {r, 10 * r, 100 * r};
      executor.begin_step();
      for (const int g : {0, 1, 2}) executor.gradient_ready(g);
      executor.launch_rest();
      executor.wait();
      const float sum = 3.0f + 3.0f * static_cast<float>(step);  // (0 + 1 + 2) + 3 step
      EXPECT_THAT(payloads.values, ElementsAre(sum, 10 * sum, 100 * sum));
    }
    EXPECT_THAT(payloads.arrivals, ElementsAre(0, 1, 0, 1, 0, 1));
  });
}

TEST(StepExecutor, LaunchesABucketWithItsLastGradient) {
  Fixture f({exchange_graph("steady", {2, 1})});
  f.executor.begin_step();
  f.executor.gradient_ready(1);
  EXPECT_THAT(f.communicator.submitted,
              IsEmpty());  // gradient 0 of the bucket is missing, though 1 is its last
  f.executor.gradient_ready(0);
  EXPECT_THAT(f.communicator.submitted, ElementsAre("all-reduce bucket 0"));
}

TEST(StepExecutor, KeepsThePlansOrderWhenALaterBucketIsReadyFirst) {
  Fixture f({exchange_graph("steady", {2, 1})});
  f.executor.begin_step();
  f.executor.gradient_ready(2);
  EXPECT_THAT(f.communicator.submitted, IsEmpty());
  f.executor.gradient_ready(0);
  f.executor.gradient_ready(1);
  EXPECT_THAT(f.communicator.submitted, ElementsAre("all-reduce bucket 0", "all-reduce bucket 1"));
}

TEST(StepExecutor, HoldLaunchesNothingBeforeTheEndOfBackward) {
  Fixture f({exchange_graph("steady", {2, 1})});
  f.executor.begin_step(/*hold=*/true);
  for (const int g : {0, 1, 2}) f.executor.gradient_ready(g);
  EXPECT_THAT(f.communicator.submitted, IsEmpty());
  f.executor.launch_rest();
  EXPECT_THAT(f.communicator.submitted, ElementsAre("all-reduce bucket 0", "all-reduce bucket 1"));
}

TEST(StepExecutor, FollowsTheScheduleOfVariants) {
  TaskGraph accumulate = exchange_graph("accumulate", {3});
  std::erase_if(accumulate.tasks, [](const Task& t) { return t.origin == Origin::executed; });
  accumulate.pred_begin.pop_back();
  accumulate.preds.clear();
  std::fill(accumulate.pred_begin.begin(), accumulate.pred_begin.end(), 0u);
  Fixture f({accumulate, exchange_graph("exchange", {3})}, {0, 1});
  std::vector<std::size_t> submissions;
  for (int step = 0; step < 4; ++step) {
    f.executor.begin_step();
    for (const int g : {0, 1, 2}) f.executor.gradient_ready(g);
    f.executor.launch_rest();
    f.executor.wait();
    submissions.push_back(f.communicator.submitted.size());
  }
  EXPECT_THAT(submissions, ElementsAre(0, 1, 1, 2));  // every second step exchanges
}

TEST(StepExecutor, RunsTheVariantThatAFlagSelected) {
  Fixture f({exchange_graph("steady", {1, 1, 1}), exchange_graph("one", {3})});
  f.executor.begin_variant("one");
  for (const int g : {0, 1, 2}) f.executor.gradient_ready(g);
  f.executor.launch_rest();
  f.executor.wait();
  EXPECT_EQ(f.communicator.submitted.size(), 1u);
  EXPECT_THROW(f.executor.begin_variant("absent"), UsageError);
}

TEST(StepExecutor, AFlagIsTheLargestRequestOfAnyRank) {
  comm::run_ranks(3, [](comm::Communicator& communicator) {
    FloatPayloads payloads;
    StepExecutor executor(communicator, payloads);
    EXPECT_EQ(executor.agree_flag(communicator.rank() == 1 ? 2 : 0), 2);
    EXPECT_EQ(executor.agree_flag(0), 0);
  });
}

/// bucket 0: encode, all-reduce, decode.
TaskGraph codec_graph() {
  TaskGraph graph;
  graph.name = "steady";
  graph.members = {0};
  graph.buckets.push_back({0, 1, DType::f32, 1});
  const auto b = graph.add({.kind = TaskKind::backward,
                            .origin = Origin::observed,
                            .resource = Resource::compute,
                            .first = 0,
                            .last = 0});
  const auto e =
      graph.add({.kind = TaskKind::encode, .resource = Resource::codec, .first = 0, .last = 0}, b);
  const auto x = graph.add({.kind = TaskKind::all_reduce,
                            .resource = Resource::network,
                            .first = 0,
                            .last = 0,
                            .bytes = 4},
                           e);
  graph.add({.kind = TaskKind::decode, .resource = Resource::codec, .first = 0, .last = 0}, x);
  return graph;
}

TEST(StepExecutor, RunsOperationsAroundTheExchange) {
  FakeCommunicator communicator;
  FloatPayloads payloads;
  payloads.values.resize(1);
  StepExecutor executor(communicator, payloads);
  Noting note(communicator.submitted);
  executor.set_operation(TaskKind::encode, note);
  executor.set_operation(TaskKind::decode, note);
  executor.set_plan(plan_of(1, {codec_graph()}, 1));
  communicator.submitted.clear();
  communicator.works.clear();
  executor.begin_step();
  executor.gradient_ready(0);
  EXPECT_THAT(communicator.submitted,
              ElementsAre("encode 0", "all-reduce bucket 0"));  // decode waits for the bytes
  executor.launch_rest();
  executor.wait();
  EXPECT_THAT(communicator.submitted, ElementsAre("encode 0", "all-reduce bucket 0", "decode 0"));
}

TEST(StepExecutor, LeavesTheOptimizerToTheCaller) {
  FakeCommunicator communicator;
  FloatPayloads payloads;
  payloads.values.resize(1);
  TaskGraph graph = exchange_graph("steady", {1});
  graph.add({.kind = TaskKind::update, .resource = Resource::compute, .first = 0, .last = 0}, 1u);
  StepExecutor executor(communicator, payloads);
  EXPECT_THROW(executor.set_plan(plan_of(1, {graph}, 1)), UsageError);
  executor.leave_to_caller(TaskKind::update);
  executor.set_plan(plan_of(1, {graph}, 1));
  executor.begin_step();
  executor.gradient_ready(0);
  executor.launch_rest();
  EXPECT_NO_THROW(executor.wait());  // done without the update
}

TEST(StepExecutor, RefusesAPlanItCannotExecute) {
  FakeCommunicator communicator;
  FloatPayloads payloads;
  StepExecutor executor(communicator, payloads);
  try {
    executor.set_plan(plan_of(1, {codec_graph()}, 1));
    FAIL() << "a plan with encode tasks was accepted without an operation";
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("kind \"encode\""));
  }
}

TEST(StepExecutor, DifferentPlansAreAnErrorOnEveryRank) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    FloatPayloads payloads;
    StepExecutor executor(communicator, payloads);
    const std::vector<int> buckets =
        communicator.rank() == 0 ? std::vector{2, 1} : std::vector{1, 2};
    try {
      executor.set_plan(plan_of(2, {exchange_graph("steady", buckets)}, 3));
      ADD_FAILURE() << "rank " << communicator.rank() << " accepted a plan that differs";
    } catch (const CommError& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 0 has"));
      EXPECT_THAT(e.what(), HasSubstr("rank 1 has"));
    }
  });
}

TEST(StepExecutor, AFailedCollectiveEndsTheStepAndAllLaterOnes) {
  Fixture f({exchange_graph("steady", {3})});
  f.executor.begin_step();
  for (const int g : {0, 1, 2}) f.executor.gradient_ready(g);
  f.communicator.works.at(0)->error = "rank 1 is silent";
  f.executor.launch_rest();
  EXPECT_THROW(f.executor.wait(), CommError);
  EXPECT_THROW(f.executor.begin_step(), CommError);
  EXPECT_THAT(f.payloads.arrivals, IsEmpty());
}

TEST(StepExecutor, AGradientThatNeverCameIsNamed) {
  Fixture f({exchange_graph("steady", {3})});
  f.executor.begin_step();
  f.executor.gradient_ready(0);
  f.executor.gradient_ready(2);
  try {
    f.executor.launch_rest();
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_THAT(e.what(), HasSubstr("gradient g1"));
  }
}

TEST(StepExecutor, RecordsReadyStartEndAndBytes) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    FloatPayloads payloads;
    payloads.values.resize(3);
    Recorder recorder(communicator, agree_origin(communicator));
    StepExecutor executor(communicator, payloads, &recorder);
    executor.set_plan(plan_of(2, {exchange_graph("steady", {2, 1})}, 3));
    recorder.begin_step(7);
    executor.begin_step();
    for (const int g : {0, 1, 2}) executor.gradient_ready(g);
    executor.launch_rest();
    executor.wait();
    const doc::Timeline timeline = recorder.timeline();
    ASSERT_EQ(timeline.events.size(), 2u);
    for (std::size_t b = 0; b < 2; ++b) {
      const doc::Event& event = timeline.events[b];
      EXPECT_EQ(event.kind, TaskKind::all_reduce);
      EXPECT_EQ(event.rank, communicator.rank());
      EXPECT_EQ(event.step, 7);
      EXPECT_EQ(event.bytes, b == 0 ? 8 : 4);
      EXPECT_GE(event.ready_ns, 0);
      EXPECT_LE(event.ready_ns, event.start_ns);
      EXPECT_LE(event.start_ns, event.end_ns);
      EXPECT_EQ(timeline.parameter_sets[static_cast<std::size_t>(event.set)].size(),
                b == 0 ? 2u : 1u);
    }
  });
}

}  // namespace
}  // namespace linerate::exec
