// Documents that a program made and its reader would refuse: refused by the same rules, by place.
#include <gmock/gmock.h>

#include <filesystem>
#include <limits>

#include "full_documents.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/doc/validate.hpp"
#include "support/message_of.hpp"

namespace linerate::doc {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kHuge = std::int64_t{1} << 62;

template <typename T>
struct Wrong {
  const char* place;
  void (*make)(T&);
};

template <typename T>
void expect_refused(const T& sound, const std::vector<Wrong<T>>& all) {
  EXPECT_NO_THROW(validate(sound, "it"));
  for (const auto& [place, make] : all) {
    T wrong = sound;
    make(wrong);
    try {
      validate(wrong, "it");
      ADD_FAILURE() << place << " passed";
    } catch (const InputError& e) {
      EXPECT_THAT(e.what(), StartsWith(std::string("it: ") + place));
      EXPECT_THAT(e.what(), testing::AnyOf(HasSubstr("expected"), HasSubstr("without")));
    } catch (const std::exception& e) {
      ADD_FAILURE() << place << ": " << e.what();
    }
    const std::filesystem::path file = std::filesystem::temp_directory_path() / "linerate_validate";
    write_file_atomically(file, "old");
    EXPECT_THROW(save(wrong, file), InputError) << place;
    EXPECT_EQ(read_file(file), "old") << place;
  }
}

TEST(Validate, AWorkload) {
  using W = Workload;
  expect_refused<W>(
      full_workload(),
      {{"/backward_s: ", [](W& w) { w.backward_s = kNaN; }},
       {"/backward_s: ", [](W& w) { w.backward_s = 0.1; }},
       {"/forward_s: ", [](W& w) { w.forward_s = -5; }},
       {"/update_s: ", [](W& w) { w.update_s = kInf; }},
       {"/tail_s: ", [](W& w) { w.tail_s = -1e-19; }},
       {"/step_s: ", [](W& w) { w.step_s = kNaN; }},
       {"/step_s: ", [](W& w) { w.step_s = 0.1; }},
       {"/step_low_s: ", [](W& w) { w.step_low_s = 0.6; }},
       {"/step_high_s: ", [](W& w) { w.step_high_s = 2e9; }},
       {"/several_ranks/compute_factor: ", [](W& w) { w.several_ranks = SeveralRanks{0.9}; }},
       {"/several_ranks/communication_s: ", [](W& w) { w.several_ranks->communication_s = -1; }},
       {"/several_ranks/compute_slowdown: ",
        [](W& w) { w.several_ranks->compute_slowdown = kNaN; }},
       {"/layers/0/forward_s: ", [](W& w) { w.layers[0].forward_s = kNaN; }},
       {"/layers/1/backward_s: ", [](W& w) { w.layers[1].backward_s = -1; }},
       {"/layers/1/flops: ", [](W& w) { w.layers[1].flops = kNaN; }},
       {"/gradients/1/elements: ", [](W& w) { w.gradients[1].elements = -4; }},
       {"/gradients/1/elements: ", [](W& w) { w.gradients[1].elements = kHuge; }},
       {"/gradients: ",
        [](W& w) { w.gradients[0].elements = w.gradients[1].elements = 999'999'999'999'996; }},
       {"/gradients/0/layer: ", [](W& w) { w.gradients[0].layer = 2; }},
       {"/gradients/0/layer: ", [](W& w) { w.gradients[0].layer = -2; }},
       {"/gradients/1/ready_s: ", [](W& w) { w.gradients[1].ready_s = kNaN; }},
       {"/gradients/0/ready_s: ", [](W& w) { w.gradients[0].ready_s = -1; }},
       {"/gradients/1/ready_s: ", [](W& w) { w.gradients[1].ready_s = 0.05; }},
       {"/gradients/0/rows: ", [](W& w) { w.gradients[0].rows = 0; }},
       {"/gradients/0/rows: ", [](W& w) { w.gradients[0].rows = 5; }},
       {"/add_cost/0/bytes: ", [](W& w) { w.add_cost[0].bytes = -1; }},
       {"/add_cost/0/seconds: ", [](W& w) { w.add_cost[0].seconds = kNaN; }},
       {"/blocks/0/layer: ", [](W& w) { w.blocks[0].layer = 7; }},
       {"/blocks/1/layer: ", [](W& w) { w.blocks[1].layer = 0; }},
       {"/blocks/1/a: ", [](W& w) { w.blocks[1].a = kHuge; }},
       {"/blocks/1/g: ", [](W& w) { w.blocks[1].g = 0; }},
       {"/blocks/1/groups: ", [](W& w) { w.blocks[1].groups = -1; }},
       {"/blocks/1/rows_a: ", [](W& w) { w.blocks[1].rows_a = -1; }},
       {"/blocks/1/factor_g_s: ", [](W& w) { w.blocks[1].factor_g_s = kNaN; }},
       {"/batch_per_rank: ", [](W& w) { w.batch_per_rank = -1; }},
       {"/buffer_bytes: ", [](W& w) { w.buffer_bytes = -1; }},
       {"/accumulation: ", [](W& w) { w.accumulation = 0; }},
       {"/current: ", [](W& w) { w.current = "ddp("; }},
       {"/other_collectives/0/collective: ",
        [](W& w) { w.other_collectives[0].collective = Collective::barrier; }},
       {"/other_collectives/0/bytes: ", [](W& w) { w.other_collectives[0].bytes = 0; }},
       {"/other_collectives/1/group: ", [](W& w) { w.other_collectives[1].group = -1; }},
       {"/other_collectives/1/group: ", [](W& w) { w.other_collectives[1].group = 1; }},
       {"/other_collectives/0/at_s: ", [](W& w) { w.other_collectives[0].at_s = kNaN; }},
       {"/other_collectives/0/at_s: ",
        [](W& w) { w.other_collectives[0].place = StepPlace::update; }},
       {"/other_collectives/0/at_s: ",
        [](W& w) {
          w.other_collectives[0].place = StepPlace::backward, w.other_collectives[0].at_s = 0.3;
        }},
       {"/other_collectives/1/every: ", [](W& w) { w.other_collectives[1].every = 0; }},
       {"/other_collectives/1/every: ",
        [](W& w) { w.other_collectives[0].every = 999, w.other_collectives[1].every = 998; }}});
}

TEST(Validate, ACluster) {
  using C = Cluster;
  expect_refused<C>(
      full_cluster(),
      {{"/ranks: ", [](C& c) { c.ranks = -1; }},
       {"/ranks_per_node: ", [](C& c) { c.ranks_per_node = 0; }},
       {"/network/bandwidth_bytes_per_s: ", [](C& c) { c.network.bandwidth_bytes_per_s = kNaN; }},
       {"/network/latency_s: ", [](C& c) { c.network.latency_s = -1; }},
       {"/network/line_rate_bytes_per_s: ", [](C& c) { c.network.line_rate_bytes_per_s = -1; }},
       {"/node/bandwidth_bytes_per_s: ", [](C& c) { c.node->bandwidth_bytes_per_s = -1; }},
       {"/node/latency_s: ", [](C& c) { c.node->latency_s = kInf; }},
       {"/collectives/0/ranks: ", [](C& c) { c.collectives[0].ranks = 0; }},
       {"/collectives/0/ranks_per_node: ", [](C& c) { c.collectives[0].ranks_per_node = -1; }},
       {"/collectives/0/error_max: ", [](C& c) { c.collectives[0].error_max = kNaN; }},
       {"/collectives/0/segments: ", [](C& c) { c.collectives[0].segments.clear(); }},
       {"/collectives/0/segments/0/alpha_s: ",
        [](C& c) { c.collectives[0].segments[0].alpha_s = kNaN; }},
       {"/collectives/0/segments/0/to_bytes: ",
        [](C& c) { c.collectives[0].segments[0].to_bytes = -1; }},
       {"/collectives/0/segments/0: ", [](C& c) { c.collectives[0].segments[0].alpha_s = -1; }},
       {"/collectives/0/segments/1: ", [](C& c) { c.collectives[0].segments[1].low = 2; }},
       {"/collectives/0/segments/1/from_bytes: ",
        [](C& c) { c.collectives[0].segments[1].from_bytes = 5; }},
       {"/collectives/0/switches/0/after_bytes: ",
        [](C& c) { c.collectives[0].switches[0].after_bytes = -1; }},
       {"/collectives/0/samples/0/seconds: ",
        [](C& c) { c.collectives[0].samples[0].seconds = kNaN; }},
       {"/codecs/0/encode_bytes_per_s: ", [](C& c) { c.codecs[0].encode_bytes_per_s = 0; }},
       {"/codecs/0/decode_bytes_per_s: ", [](C& c) { c.codecs[0].decode_bytes_per_s = -1; }},
       {"/codecs/0/encode_fixed_s: ", [](C& c) { c.codecs[0].encode_fixed_s = -1; }},
       {"/codecs/0/encode_tensor_s: ", [](C& c) { c.codecs[0].encode_tensor_s = -1; }},
       {"/codecs/0/decode_tensor_s: ", [](C& c) { c.codecs[0].decode_tensor_s = kNaN; }},
       {"/codecs/0/flops_per_s: ", [](C& c) { c.codecs[0].flops_per_s = -1; }},
       {"/codecs/0/spread: ", [](C& c) { c.codecs[0].spread = 0.5; }},
       {"/second_order/inverses/0/seconds: ",
        [](C& c) { c.second_order->inverses[0].seconds = kNaN; }},
       {"/second_order/inverses/1/dim: ",
        [](C& c) { c.second_order->inverses.push_back(c.second_order->inverses[0]); }},
       {"/second_order/batches/1/dim: ",
        [](C& c) { c.second_order->batches.push_back(c.second_order->batches[0]); }},
       {"/second_order/batches/0/count: ", [](C& c) { c.second_order->batches[0].count = 0; }},
       {"/second_order/factor_flops_per_s: ",
        [](C& c) { c.second_order->factor_flops_per_s = -1; }},
       {"/contention/compute_slowdown: ", [](C& c) { c.contention->compute_slowdown = 0; }},
       {"/rank_speeds/0/rank: ", [](C& c) { c.rank_speeds[0].rank = -1; }},
       {"/rank_speeds/0/compute_factor: ", [](C& c) { c.rank_speeds[0].compute_factor = kNaN; }},
       {"/rank_speeds/0/delay_s: ", [](C& c) { c.rank_speeds[0].delay_s = -1; }},
       {"/reduce_s_per_byte: ", [](C& c) { c.reduce_s_per_byte = -1; }},
       {"/half_sum_s_per_byte: ", [](C& c) { c.half_sum_s_per_byte = kNaN; }},
       {"/tensor_s: ", [](C& c) { c.tensor_s = -1; }},
       {"/start_delay_s: ", [](C& c) { c.start_delay_s = kNaN; }},
       {"/memory_bytes: ", [](C& c) { c.memory_bytes = 0; }},
       {"/progress_sleep_s: ", [](C& c) { c.progress_sleep_s = -1; }},
       {"/noise_floor: ", [](C& c) { c.noise_floor = kInf; }},
       {"/cores: ", [](C& c) { c.cores = 0; }}});
}

TEST(Validate, ATimeline) {
  using T = Timeline;
  expect_refused<T>(
      full_timeline(),
      {{"/events/0/9: ", [](T& t) { t.events[0].bytes = -2; }},
       {"/events/0/8: ", [](T& t) { t.events[0].end_ns = 9; }},
       {"/events/0/4: ", [](T& t) { t.events[0].name = 1; }},
       {"/events/0/5: ", [](T& t) { t.events[0].set = -2; }},
       {"/events/0/10: ", [](T& t) { t.events[0].group = 5; }},
       {"/events/0/0: ", [](T& t) { t.events[0].kind = static_cast<TaskKind>(99); }},
       {"/events/0/7: ", [](T& t) { t.events[0].start_ns = -kHuge; }},
       {"/steps/0/index: ", [](T& t) { t.steps[0].index = -1; }},
       {"/steps/0/end_ns: ", [](T& t) { t.steps[0].end_ns = -1; }},
       {"/parameter_sets/0/1: ", [](T& t) { t.parameter_sets[0][1] = 2; }},
       {"/parameter_sets/0/0: ", [](T& t) { t.parameter_sets[0][0] = -1; }},
       {"/groups/0/ranks: ", [](T& t) { t.groups[0].ranks = 0; }},
       {"/ranks: ", [](T& t) { t.ranks = 0; }},
       {"/counters/0/samples/1/1: ", [](T& t) { t.counters[0].samples[1].value = kNaN; }},
       {"/one_rank_step_s: ", [](T& t) { t.one_rank_step_s = -1; }},
       {"/line_rate_bytes_per_s: ", [](T& t) { t.line_rate_bytes_per_s = 0; }}});
}

// What no file can say, as an edge to a later task, has the Plan for its place.
TEST(Validate, APlan) {
  using P = Plan;
  expect_refused<P>(
      small_plan(),
      {{"/variants/0/tasks/3/seconds: ", [](P& p) { p.variants[0].tasks[3].seconds = kNaN; }},
       {"/variants/0/tasks/0/seconds: ", [](P& p) { p.variants[0].tasks[0].seconds = -1; }},
       {"/variants/0/tasks/1/bytes: ", [](P& p) { p.variants[0].tasks[1].bytes = -24; }},
       {"/variants/0/tasks/1/expected: ", [](P& p) { p.variants[0].tasks[1].expected = 25; }},
       {"expected a Plan", [](P& p) { p.variants[0].tasks[1].group = 9; }},
       {"expected a Plan", [](P& p) { p.variants[0].tasks[1].last = 9; }},
       {"expected a Plan", [](P& p) { p.variants[0].preds[0] = 3; }},
       {"expected a Plan", [](P& p) { p.variants[0].payloads[0].elements = -1; }},
       {"expected a Plan", [](P& p) { p.cycle = {3}; }},
       {"expected a Plan", [](P& p) { p.cycle.clear(); }}});
}

TEST(Validate, AnEvaluation) {
  using E = Evaluation;
  expect_refused<E>(full_evaluation(),
                    {{"/setups/0/ranks: ", [](E& e) { e.setups[0].ranks = 0; }},
                     {"/setups/0/timed/0/round_step_s/1: ",
                      [](E& e) { e.setups[0].timed[0].round_step_s[1] = kNaN; }},
                     {"/setups/0/timed/0/round_step_s: ",
                      [](E& e) { e.setups[0].timed[0].round_step_s.clear(); }},
                     {"/setups/0/trained/0/points/0/test_accuracy: ",
                      [](E& e) { e.setups[0].trained[0].points[0].test_accuracy = 1.5; }},
                     {"/setups/0/mode: ", [](E& e) { e.setups[0].mode = "dreamt"; }}});
}

TEST(Validate, PredictionsAndAdvice) {
  Predictions predictions = full_predictions();
  predictions.predictions[0].step_s = Bounded{-1};
  EXPECT_THROW(validate(predictions), InputError);
  Advice advice = full_advice();
  advice.one_rank_step_s = kNaN;
  EXPECT_THROW(validate(advice), InputError);
}

TEST(Validate, NamesTheDocumentWhereNoPlaceIsGiven) {
  Workload w = full_workload();
  w.name = "resnet50";
  w.gradients[0].elements = -5;
  EXPECT_EQ(support::message_of<InputError>([&] { validate(w); }),
            "the Workload \"resnet50\": /gradients/0/elements: expected 0 to 1000000000000000, "
            "found -5");
}

// Names of other programs are bytes.
TEST(Save, KeepsADocumentWhoseNamesAreNoText) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "linerate_bytes.json";
  Timeline t = full_timeline();
  t.names[0] = "conv\xff";
  save(t, file);
  EXPECT_EQ(load_timeline(file).names[0], "conv\xef\xbf\xbd");
}

}  // namespace
}  // namespace linerate::doc
