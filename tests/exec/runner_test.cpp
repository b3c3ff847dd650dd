#include "linerate/exec/runner.hpp"
#include "linerate/core/clock.hpp"

#include <gmock/gmock.h>

#include <mutex>
#include <thread>

#include "exec/fake_communicator.hpp"
#include "exec/sample_plans.hpp"
#include "linerate/comm/thread/run_ranks.hpp"

namespace linerate::exec {
namespace {

using doc::Origin;
using doc::Resource;
using doc::Subject;
using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

/// Notes which task ran, and on which thread.
struct Noting : Operation {
  std::mutex mutex;
  std::vector<std::string> log;
  std::vector<std::thread::id> threads;
  void run(const TaskGraph&, const Task& task) override {
    const std::lock_guard lock(mutex);
    log.push_back(std::string(name_of(task.kind)));
    threads.push_back(std::this_thread::get_id());
  }
};

enum class Others { refused, wait };

/// A rank's runner. Operations but "note" are refused, or wait until they are due.
struct OnRank {
  FloatPayloads payloads;
  Noting note;
  Recorder recorder;
  Runner runner;
  OnRank(comm::Communicator& communicator, std::shared_ptr<doc::Plan> plan,
         Others others = Others::refused)
      : recorder(communicator, {}, "trained"), runner(communicator, payloads, &recorder) {
    payloads.values.resize(plan->gradient_names.size());
    if (others == Others::wait)
      runner.let_other_operations_wait();
    else
      runner.set_operation("note", note);
    runner.set_plan(std::move(plan));
  }
  /// Begins a step and reports all gradients.
  void report_gradients() {
    runner.begin_step();
    for (int g = 0; g < static_cast<int>(payloads.values.size()); ++g) runner.report_backward(g);
  }
  void step() {
    report_gradients();
    runner.drain();
  }
};

struct FakeRank {
  FakeCommunicator communicator;
};
/// Over a fake communicator, submissions of its set-up forgotten.
struct Fixture : FakeRank, OnRank {
  explicit Fixture(std::shared_ptr<doc::Plan> plan, Others others = Others::refused)
      : OnRank(communicator, std::move(plan), others) {
    communicator.submitted.clear();
    communicator.works.clear();
  }
  explicit Fixture(std::vector<TaskGraph> variants, int gradients = 3)
      : Fixture(plan_of(1, std::move(variants), gradients)) {}
  void finish_works() {
    for (std::size_t i = 0; i < communicator.works.size(); ++i)
      if (!communicator.works[i]->is_done) communicator.works[i]->finish();
  }
};

TEST(Runner, SumsEveryBucketOverRanks) {
  comm::run_ranks(3, [](comm::Communicator& communicator) {
    OnRank rank(communicator, plan_of(3, {exchange_graph("steady", {2, 1})}, 3));
    for (int step = 0; step < 3; ++step) {
      const float r = static_cast<float>(communicator.rank() + step);
      rank.payloads.values = {r, 10 * r, 100 * r};
      rank.step();
      const float sum = 3.0f + 3.0f * static_cast<float>(step);  // (0 + 1 + 2) + 3 step
      EXPECT_THAT(rank.payloads.values, ElementsAre(sum, 10 * sum, 100 * sum));
    }
  });
}

/// Backward of one gradient, its all-reduce, and an update at the head of the step, which waits for
/// the all-reduce of the step before: a decoupled exchange at its smallest.
TaskGraph decoupled_graph() {
  TaskGraph graph = bucket_of_one();
  graph.add({.kind = TaskKind::update, .origin = Origin::observed, .resource = Resource::compute});
  const auto backward = graph.add(backward_of(0));
  graph.add(sum_of(0, 1), backward);
  graph.next_step.push_back({2, 0, 0});
  return graph;
}

TEST(Runner, AStepMayBeginWhileTheNetworkFinishesTheOneBefore) {
  Fixture f({decoupled_graph()}, 1);
  f.runner.begin_step("step 0");
  f.runner.report_before_backward();  // nothing in front of the first step
  f.runner.report_backward(0);
  f.runner.end_step();
  EXPECT_FALSE(f.runner.in_step());
  const TaskId arrival = f.runner.current(2);

  f.runner.begin_step("step 1");
  EXPECT_THAT(f.communicator.submitted, ElementsAre("step 0: all-reduce bucket 0"));
  std::thread network([&f] { f.communicator.works[0]->finish(); });
  f.runner.wait_for(arrival);
  f.runner.gate(0);
  f.runner.report(0);
  f.runner.report_backward(0);
  network.join();
  EXPECT_EQ(f.communicator.submitted.back(), "step 1: all-reduce bucket 0");
  f.communicator.works[1]->finish();
  f.runner.drain();
  f.runner.drain();  // nothing is left: no wait, no error
}

TEST(Runner, EventsBelongToTheStepInWhichTheyBegan) {
  Fixture f({decoupled_graph()}, 1);
  for (const int step : {7, 8}) {
    f.recorder.begin_step(step);
    f.runner.begin_step();
    if (step == 8) f.communicator.works[0]->finish();
    f.runner.report_before_backward();
    f.runner.report_backward(0);
    f.runner.end_step();
  }
  f.communicator.works[1]->finish();
  f.runner.drain();
  std::vector<std::int32_t> steps;
  for (const doc::Event& e : f.recorder.timeline().events) steps.push_back(e.step);
  EXPECT_THAT(steps, ElementsAre(7, 8));
}

TEST(Runner, RunsTheVariantThatWasAgreedOn) {
  Fixture f({exchange_graph("steady", {1, 1, 1}), exchange_graph("one", {3})});
  f.runner.begin_variant("one");
  for (const int g : {0, 1, 2}) f.runner.report_backward(g);
  f.finish_works();
  f.runner.drain();
  EXPECT_EQ(f.communicator.submitted.size(), 1u);
  EXPECT_EQ(f.runner.graph().name, "one");
  EXPECT_THROW(f.runner.begin_variant("absent"), UsageError);
}

/// bucket 0: encode, all-reduce, decode, in the lanes given.
TaskGraph codec_graph(Resource lane) {
  TaskGraph g = bucket_of_one();
  const auto backward = g.add(backward_of(0));
  const auto encode = g.add(note_task(TaskKind::encode, lane), backward);
  g.add(note_task(TaskKind::decode, lane), g.add(sum_of(0, 1), encode));
  return g;
}

TEST(Runner, ComputeLaneRunsOnTheDriversThread) {
  Fixture f({codec_graph(Resource::compute)}, 1);
  f.runner.begin_step();
  f.runner.report_backward(0);
  EXPECT_THAT(f.note.log, ElementsAre("encode"));
  EXPECT_THAT(f.communicator.submitted, ElementsAre("all-reduce bucket 0"));
  std::thread progress([&] { f.finish_works(); });
  progress.join();
  EXPECT_THAT(f.note.log, ElementsAre("encode"));  // not on the thread that moved the bytes
  f.runner.drain();
  EXPECT_THAT(f.note.log, ElementsAre("encode", "decode"));
  EXPECT_THAT(f.note.threads, ElementsAre(std::this_thread::get_id(), std::this_thread::get_id()));
}

TEST(Runner, OtherLanesRunOnAWorkerEach) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    OnRank rank(communicator, plan_of(2, {codec_graph(Resource::codec)}, 1));
    rank.payloads.values = {1};
    for (int step = 0; step < 5; ++step) rank.step();
    EXPECT_EQ(rank.payloads.values[0], 32);  // doubled five times
    EXPECT_EQ(rank.note.log.size(), 10u);
    for (const std::thread::id id : rank.note.threads) {
      EXPECT_NE(id, std::this_thread::get_id());
      EXPECT_EQ(id, rank.note.threads.front());
    }
  });
}

TEST(Runner, ATimerHoldsWhatWaitsForIt) {
  TaskGraph g = exchange_graph("steady", {1});
  const auto timer = g.add({.kind = TaskKind::host, .operation = 2, .seconds = 0.002});
  g.add(note_task(TaskKind::encode, Resource::codec), timer);
  auto plan = plan_of(1, {g}, 1);
  plan->operations.push_back({"timer", {}});
  Fixture f(plan);
  f.runner.begin_step();
  f.runner.report_backward(0);
  f.finish_works();
  f.runner.drain();
  const doc::Timeline t = f.recorder.timeline();
  std::int64_t fired = -1, encoded = -1;
  for (const doc::Event& e : t.events) {
    if (e.kind == TaskKind::host) {
      fired = e.end_ns;
      EXPECT_GE(e.end_ns - e.start_ns, 2'000'000);
    }
    if (e.kind == TaskKind::encode) encoded = e.start_ns;
  }
  EXPECT_GE(encoded, fired);
}

TEST(Runner, GroupsExchangeApart) {
  // Ranks 0 and 1 sum among themselves, 2 and 3 too.
  comm::run_ranks(4, [](comm::Communicator& communicator) {
    TaskGraph g = exchange_graph("steady", {1});
    g.tasks.back().group = 1;
    auto plan = plan_of(4, {g}, 1);
    plan->groups.push_back({"node", {{0, 1}, {2, 3}}});
    OnRank rank(communicator, plan);
    rank.payloads.values = {static_cast<float>(1 << communicator.rank())};
    rank.step();
    EXPECT_EQ(rank.payloads.values[0], communicator.rank() < 2 ? 3 : 12);
  });
}

/// Payload 0: six floats of gradients; payload 1: as many that nobody fills.
struct TwoArrays : Payloads {
  std::vector<float> in, out;
  comm::Buffer buffer(const TaskGraph&, std::int32_t payload) override {
    std::vector<float>& values = payload == 0 ? in : out;
    return comm::buffer(values);
  }
  std::vector<std::int64_t> counts(const TaskGraph&, const Task&) override { return {3, 0, 3}; }
};

/// What one collective over three ranks makes of {10 r, 10 r + 1, ...}.
std::vector<float> result_of(comm::Communicator& communicator, Task task) {
  TaskGraph g = exchange_graph("steady", {6});
  g.payloads.push_back({.content = doc::Content::encoded, .of = 0, .elements = 6, .padded = 6});
  task.resource = Resource::network;
  task.subject = Subject::payloads;
  task.bytes = 24;
  g.tasks.back() = task;
  TwoArrays arrays;
  for (int i = 0; i < 6; ++i) arrays.in.push_back(static_cast<float>(10 * communicator.rank() + i));
  arrays.out.resize(6);
  Runner runner(communicator, arrays);
  runner.set_plan(plan_of(3, {g}, 6));
  runner.begin_step();
  for (int position = 0; position < 6; ++position) runner.report_backward(position);
  runner.drain();
  return task.kind == TaskKind::all_to_all ? arrays.out : arrays.in;
}

TEST(Runner, EveryKindOfCollectiveMovesItsPayload) {
  comm::run_ranks(3, [](comm::Communicator& c) {
    const auto r = static_cast<float>(c.rank());
    const Task sum{.operation = 0, .last = 0}, move{.last = 0};
    const auto of = [&](Task task, TaskKind kind) {
      task.kind = kind;
      return result_of(c, task);
    };
    // Sums over ranks: 30 + 3 i.
    EXPECT_THAT(of(sum, TaskKind::all_reduce), ElementsAre(30, 33, 36, 39, 42, 45));
    const std::vector<float> scattered = of(sum, TaskKind::reduce_scatter);
    EXPECT_EQ(scattered[static_cast<std::size_t>(2 * c.rank())], 30 + 6 * r);  // its own block
    EXPECT_THAT(of(move, TaskKind::all_gather), ElementsAre(0, 1, 12, 13, 24, 25));
    EXPECT_THAT(of(move, TaskKind::all_gather_v), ElementsAre(0, 1, 2, 23, 24, 25));
    Task broadcast = move, exchange = move;
    broadcast.root = 2;
    EXPECT_THAT(of(broadcast, TaskKind::broadcast), ElementsAre(20, 21, 22, 23, 24, 25));
    exchange.last = 1;
    EXPECT_THAT(of(exchange, TaskKind::all_to_all),
                ElementsAre(2 * r, 2 * r + 1, 10 + 2 * r, 11 + 2 * r, 20 + 2 * r, 21 + 2 * r));
  });
}

TEST(Runner, RefusesAPlanItCannotExecute) {
  FakeCommunicator communicator;
  FloatPayloads payloads;
  Runner runner(communicator, payloads);
  EXPECT_THAT([&] { runner.set_plan(plan_of(1, {codec_graph(Resource::codec)}, 1)); },
              ThrowsMessage<UsageError>(HasSubstr("\"encode bucket 0\" (operation \"note\")")));
}

TEST(Runner, DifferentPlansAreAnErrorOnEveryRank) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    const std::vector<int> buckets =
        communicator.rank() == 0 ? std::vector{2, 1} : std::vector{1, 2};
    const auto plan = plan_of(2, {exchange_graph("steady", buckets)}, 3);
    EXPECT_THAT([&] { OnRank rank(communicator, plan); },
                ThrowsMessage<CommError>(AllOf(HasSubstr("rank 0 has"), HasSubstr("rank 1 has"))));
  });
}

TEST(Runner, AFailedCollectiveEndsTheStepAndAllLaterOnes) {
  Fixture f({codec_graph(Resource::compute)}, 1);
  f.runner.begin_step();
  f.runner.report_backward(0);
  f.communicator.works.at(0)->error = "rank 1 is silent";
  f.finish_works();
  EXPECT_THROW(f.runner.drain(), CommError);
  EXPECT_THROW(f.runner.begin_step(), CommError);
  EXPECT_THAT(f.note.log, ElementsAre("encode"));  // nothing is decoded
}

TEST(Runner, AFailedOperationEndsTheStep) {
  struct Failing : Operation {
    void run(const TaskGraph&, const Task&) override { throw UsageError("sparse"); }
  } failing;
  for (const Resource lane : {Resource::compute, Resource::codec}) {
    Fixture f({codec_graph(lane)}, 1);
    f.runner.set_operation("note", failing);
    EXPECT_THROW(f.step(), UsageError);
    EXPECT_THAT(f.communicator.submitted, IsEmpty());
  }
}

TEST(Runner, APayloadOfAnotherSizeThanThePlanSaysIsNotSent) {
  TaskGraph g = exchange_graph("steady", {3});
  g.tasks.back().bytes = 8;
  Fixture f({g});
  EXPECT_THROW(f.report_gradients(), InternalError);
  EXPECT_THAT(f.communicator.submitted, IsEmpty());
}

TEST(Runner, ATaskThatCannotRunIsNamed) {
  Fixture f({exchange_graph("steady", {3})});
  f.runner.begin_step();
  f.runner.report_backward(0);
  f.runner.report_backward(2);
  EXPECT_THAT([&] { f.runner.drain(); },
              ThrowsMessage<InternalError>(HasSubstr("all-reduce bucket 0")));
}

TEST(Runner, MayGoWhileACollectiveIsUnderWay) {
  auto f = std::make_unique<Fixture>(std::vector{exchange_graph("steady", {3})});
  f->report_gradients();
  const std::shared_ptr<FakeWork> work = f->communicator.works.at(0);
  f.reset();
  work->finish();  // reports to nobody
}

TEST(Runner, OperationsThatNobodySetWaitUntilTheyAreDue) {
  TaskGraph g = codec_graph(Resource::codec);
  g.tasks[1].seconds = 0.003;
  Fixture f(plan_of(1, {g}, 1), Others::wait);
  f.runner.begin_step();
  const std::int64_t reported = steady_ns();
  f.runner.report(0, reported);
  f.runner.wait_for(f.runner.current(1));
  f.finish_works();
  f.runner.drain();
  const doc::Timeline t = f.recorder.timeline();
  // From the moment reported on, whenever the worker woke up; the decode takes no time.
  ASSERT_EQ(t.events.size(), 2u);
  EXPECT_EQ(t.events[0].kind, TaskKind::encode);
  EXPECT_EQ(t.events[0].start_ns, reported);
  EXPECT_EQ(t.events[0].end_ns, reported + 3'000'000);
  EXPECT_EQ(t.events[1].kind, TaskKind::all_reduce);
}

}  // namespace
}  // namespace linerate::exec
