// Every call that takes documents refuses those that no file may hold, by place: the calls of
// include/linerate, times what was found to give wrong numbers.
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "linerate/advise/advise.hpp"
#include "linerate/compare/comparison.hpp"
#include "linerate/core/error.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/plan/make_plan.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/trace/export/perfetto.hpp"
#include "linerate/whatif/answer.hpp"

namespace linerate {
namespace {

using testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// What a program may hand in.
struct Documents {
  doc::Workload workload;
  doc::Cluster cluster;
  doc::Plan plan;
  doc::Timeline timeline;
};

doc::Strategy ddp() { return doc::parse_strategy("ddp"); }

Documents sound() {
  Documents d;
  d.workload.name = "net";
  d.workload.layers = {{"a", "linear", 1e-3, 2e-3, 10}};
  d.workload.gradients = {{"b", 1000, DType::f32, 0, 1, 1e-3}, {"a", 2000, DType::f32, 0, 0, 2e-3}};
  d.workload.backward_s = 2e-3;
  d.workload.forward_s = 1e-3;
  d.cluster.name = "lab";
  d.cluster.ranks = 4;
  d.cluster.network = {1.25e9, 1e-5};
  d.plan = plan::make_plan(d.workload, d.cluster, ddp(), 4);
  d.timeline = sim::predicted_timeline(d.plan, d.workload, cost::CostModel(d.cluster));
  return d;
}

struct Wrong {
  const char* kind;
  const char* place;
  void (*make)(Documents&);
};

const std::vector<Wrong> kWrong = {
    {"workload",
     "/gradients/1/elements: ", [](auto& d) { d.workload.gradients[1].elements = -2000; }},
    {"workload", "/gradients/1/elements: ",
     [](auto& d) { d.workload.gradients[1].elements = std::int64_t{1} << 62; }},
    {"workload", "/gradients/0/ready_s: ", [](auto& d) { d.workload.gradients[0].ready_s = kNaN; }},
    {"workload", "/gradients/0/ready_s: ", [](auto& d) { d.workload.gradients[0].ready_s = -1; }},
    {"workload", "/forward_s: ", [](auto& d) { d.workload.forward_s = -5; }},
    {"cluster", "/network/latency_s: ", [](auto& d) { d.cluster.network.latency_s = -1; }},
    {"cluster", "/network/bandwidth_bytes_per_s: ",
     [](auto& d) { d.cluster.network.bandwidth_bytes_per_s = kNaN; }},
    {"cluster", "/tensor_s: ", [](auto& d) { d.cluster.tensor_s = -1; }},
    {"plan", "/tasks/0/seconds: ", [](auto& d) { d.plan.variants[0].tasks[0].seconds = kNaN; }},
    {"plan", "/tasks/0/seconds: ", [](auto& d) { d.plan.variants[0].tasks[0].seconds = -1; }},
    {"plan", "expected a Plan whose", [](auto& d) { d.plan.cycle = {9}; }},
    {"timeline", "/events/0/8: ", [](auto& d) { d.timeline.events[0].end_ns = -7; }},
    {"timeline", "/one_rank_step_s: ", [](auto& d) { d.timeline.one_rank_step_s = kNaN; }}};

struct Call {
  const char* name;
  std::string kinds;  // that it takes
  std::function<void(const Documents&)> of;
};

std::vector<Call> calls() {
  const cost::CostModel model(sound().cluster);
  const whatif::Question question{.strategies = {ddp()}};
  const Documents good = sound();
  const auto inputs = [](const doc::Timeline& timeline) {
    report::Inputs run;
    run.timelines.push_back({.file = "", .label = "run", .timeline = timeline});
    return run;
  };
  return {
      {"CostModel", "cluster", [=](auto& d) { cost::CostModel of(d.cluster); }},
      {"make_plan", "workload cluster",
       [=](auto& d) { return plan::make_plan(d.workload, d.cluster, ddp(), 4); }},
      {"make_plan with costs", "workload cluster",
       [=](auto& d) { return plan::make_plan(d.workload, d.cluster, ddp(), 4, {.cost = model}); }},
      {"simulate", "plan", [=](auto& d) { return sim::simulate(d.plan, model); }},
      {"predicted_timeline", "plan workload",
       [=](auto& d) { return sim::predicted_timeline(d.plan, d.workload, model); }},
      {"ask", "workload cluster",
       [=](auto& d) { return whatif::ask(d.workload, d.cluster, question); }},
      {"plan_one", "workload cluster",
       [=](auto& d) { return whatif::plan_one(d.workload, d.cluster, question); }},
      {"only", "workload cluster",
       [=](auto& d) { return whatif::only(d.workload, d.cluster, question, 0); }},
      {"first_timeline", "workload cluster",
       [=](auto& d) { return whatif::first_timeline(d.workload, d.cluster, question); }},
      {"timeline_of", "plan workload",
       [=](auto& d) {
         return whatif::timeline_of({d.plan, model}, d.workload);
       }},
      {"advise", "workload cluster",
       [=](auto& d) { return advise::advise(d.workload, d.cluster, {.ranks = 4}); }},
      {"compare, predicted", "timeline",
       [=](auto& d) { return compare::compare(d.timeline, good.timeline); }},
      {"compare, measured", "timeline",
       [=](auto& d) { return compare::compare(good.timeline, d.timeline); }},
      {"compare, noise", "timeline",
       [=](auto& d) {
         return compare::compare(good.timeline, good.timeline, {.noise = &d.timeline});
       }},
      {"to_perfetto", "timeline", [=](auto& d) { return trace::to_perfetto(d.timeline); }},
      {"page_of", "timeline", [=](auto& d) { return report::page_of(inputs(d.timeline), "", ""); }},
      {"scaled", "workload", [=](auto& d) { return doc::scaled(d.workload, 0.5); }}};
}

TEST(HandedDocuments, AreHeldToTheRulesOfFilesByEveryCall) {
  int refused = 0;
  for (const Call& call : calls()) {
    EXPECT_NO_THROW(call.of(sound())) << call.name;
    for (const Wrong& wrong : kWrong) {
      if (call.kinds.find(wrong.kind) == std::string::npos) continue;
      Documents d = sound();
      wrong.make(d);
      try {
        call.of(d);
        ADD_FAILURE() << call.name << " took " << wrong.place;
      } catch (const InputError& e) {
        EXPECT_THAT(e.what(), HasSubstr(wrong.place)) << call.name;
        ++refused;
      } catch (const std::exception& e) {
        ADD_FAILURE() << call.name << ", " << wrong.place << ": " << e.what();
      }
    }
  }
  EXPECT_GT(refused, 80);
}

}  // namespace
}  // namespace linerate
