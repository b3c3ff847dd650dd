// Every value of a document, replaced by others in turn: what is accepted is kept whole, what is
// not is refused with its place, what was expected and what was found.
#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/doc/workload.hpp"
#include "small_documents.hpp"

namespace linerate::doc {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

const char* const kWorkload = R"({"document": "workload", "schema": 1, "name": "w", "source": "s",
 "batch_per_rank": 8, "buffer_bytes": 24, "backward_s": 0.2, "forward_s": 0.1, "update_s": 0.01,
 "tail_s": 0.01, "step_s": 0.5, "step_low_s": 0.45, "step_high_s": 0.6, "step_origin": "o",
 "accumulation": 2, "current": "ddp", "split_by_flops": true,
 "several_ranks": {"compute_factor": 1.1, "communication_s": 0.04, "compute_slowdown": 1.8},
 "layers": [{"name": "a", "forward_s": 0.1, "backward_s": 0.2}, {"name": "b"}],
 "gradients": [{"name": "g", "elements": 12, "dtype": "f32", "layer": 1, "registration": 1,
                "ready_s": 0.1, "rows": 3},
               {"name": "h", "elements": 4, "dtype": "f32", "layer": 0, "registration": 0,
                "ready_s": 0.2, "turn": 1}],
 "add_cost": [{"bytes": 1024, "seconds": 1e-6}],
 "blocks": [{"layer": 0, "kind": "kronecker", "a": 3, "g": 4, "groups": 1, "factor_a_s": 1e-4},
            {"layer": 1, "a": 2, "g": 2}],
 "other_collectives": [{"collective": "all-gather", "bytes": 2056, "per_rank": true, "group": 2,
                        "place": "forward", "at_s": 0.05, "every": 2},
                       {"collective": "broadcast", "bytes": 1000, "place": "update"}]})";

const char* const kCluster = R"({"document": "cluster", "schema": 1, "name": "c", "source": "s",
 "ranks": 4, "ranks_per_node": 2, "cores": 8, "memory_bytes": 1e9,
 "network": {"bandwidth_bytes_per_s": 1e9, "latency_s": 1e-5, "line_rate_bytes_per_s": 1.1e9},
 "node": {"bandwidth": "100 Gbit/s", "latency": "2us"},
 "collectives": [{"collective": "all-reduce", "ranks": 4, "dtype": "f32", "in_place": true,
   "ranks_per_node": 2, "error_mean": 0.01, "error_max": 0.1,
   "segments": [{"from_bytes": 0, "to_bytes": 1000, "alpha_s": 1e-5, "beta_s_per_byte": 1e-9,
                 "low": 0.9, "high": 1.1},
                {"from_bytes": 1000, "to_bytes": 9000, "alpha_s": 1e-5, "beta_s_per_byte": 1e-9}],
   "switches": [{"after_bytes": 1000, "before_bytes": 1001}],
   "samples": [{"bytes": 1000, "seconds": 1e-5, "low_s": 1e-6, "high_s": 1e-4}]}],
 "codecs": [{"name": "fp16", "encode_fixed_s": 1e-6, "encode_bytes_per_s": 1e9,
             "decode_fixed_s": 1e-6, "decode_bytes_per_s": 1e9, "device": "cuda",
             "encode_tensor_s": 1e-6, "decode_tensor_s": 1e-6, "flops_per_s": 1e12, "spread": 2}],
 "second_order": {"inverse_fixed_s": 1e-4, "inverse_s_per_cube": 1e-12, "factor_fixed_s": 1e-5,
   "factor_flops_per_s": 1e12, "factor_s_per_input": 1e-9, "factor_s_per_element": 1e-9,
   "precondition_fixed_s": 1e-6, "precondition_flops_per_s": 1e12,
   "inverses": [{"dim": 64, "seconds": 1e-4}, {"dim": 128, "seconds": 2e-4}],
   "batches": [{"dim": 64, "count": 4, "one_by_one_s": 4e-4, "together_s": 1e-4}], "device": "cuda"},
 "contention": {"compute_slowdown": 1.1, "communication_slowdown": 1.2, "coding_slowdown": 1.3},
 "rank_speeds": [{"rank": 1, "compute_factor": 1.5, "delay_s": 0.01}],
 "reduce_s_per_byte": 1e-10, "half_sum_s_per_byte": 1e-10, "tensor_s": 1e-6,
 "progress_sleep_s": 1e-4, "noise_floor": 0.05, "start_delay_s": 1e-5})";

/// The document as it is written again after it was read.
using Reread = std::string (*)(const std::string& text);

struct Kind {
  const char* name;
  std::string text;
  Reread reread;
  /// Keys that may be below 0.
  std::vector<std::string> signed_keys;
};

std::vector<Kind> kinds() {
  return {
      {"workload",
       kWorkload,
       [](const std::string& text) { return to_json(workload_from_json(text, "file")); },
       {"layer", "registration"}},
      {"cluster",
       kCluster,
       [](const std::string& text) { return to_json(cluster_from_json(text, "file")); },
       {"alpha_s", "beta_s_per_byte"}},
      {"timeline",
       to_json(small_timeline()),
       [](const std::string& text) { return to_json(timeline_from_json(text, "file")); },
       // times begin anywhere; -1 is none, or all, of what an event's column counts
       {"events", "steps", "samples", "origin_ns"}},
      {"plan",
       to_json(small_plan()),
       [](const std::string& text) { return to_json(plan_from_json(text, "file")); },
       {"first", "last", "layer"}},
  };
}

/// The pointers to all values below `json` that hold no others.
std::vector<Json::json_pointer> leaves(const Json& json) {
  std::vector<Json::json_pointer> all;
  Json flat = json.flatten();
  flat.erase("/hash");  // of a Plan's text: computed anew
  for (const auto& leaf : flat.items()) all.emplace_back(leaf.key());
  return all;
}

bool may_be_negative(const Kind& kind, const std::string& pointer) {
  return std::any_of(kind.signed_keys.begin(), kind.signed_keys.end(), [&](const std::string& key) {
    return pointer.find("/" + key) != std::string::npos;
  });
}

class EveryValue : public testing::TestWithParam<Kind> {};

TEST_P(EveryValue, IsKeptWholeOrRefusedByPlaceWithWhatWasFound) {
  const Kind kind = GetParam();
  const Json whole = Json::parse(kind.text);
  ASSERT_NO_THROW(kind.reread(kind.text));
  const std::vector<Json> values = {-3,
                                    0,
                                    0.37,
                                    4294967297,
                                    -4294967295,
                                    1e300,
                                    "word",
                                    Json::array(),
                                    Json::object(),
                                    true,
                                    -1e300,
                                    9200000000000000000};
  int refused = 0;
  for (const Json::json_pointer& pointer : leaves(whole))
    for (const Json& value : values) {
      Json wrong = whole;
      wrong[pointer] = value;
      const std::string what = pointer.to_string() + " = " + value.dump();
      try {
        const Json kept = Json::parse(kind.reread(wrong.dump()));
        if (!value.is_number()) continue;
        EXPECT_TRUE(may_be_negative(kind, pointer.to_string()) || value.get<double>() >= 0) << what;
        // What is 0 may be left out.
        if (kept.contains(pointer)) {
          EXPECT_EQ(kept[pointer].get<double>(), value.get<double>()) << what;
        } else {
          EXPECT_EQ(value.get<double>(), 0) << what;
        }
      } catch (const InputError& e) {
        ++refused;
        EXPECT_THAT(e.what(), AnyOf(HasSubstr("file: /"), HasSubstr("file: expected"))) << what;
        EXPECT_THAT(e.what(), AnyOf(HasSubstr("found"), HasSubstr("in all"), HasSubstr("\""),
                                    HasSubstr("at ")))
            << what;
      } catch (const std::exception& e) {
        ADD_FAILURE() << what << ": " << e.what();
      }
    }
  EXPECT_GT(refused, 20);
}

INSTANTIATE_TEST_SUITE_P(Documents, EveryValue, testing::ValuesIn(kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace linerate::doc
