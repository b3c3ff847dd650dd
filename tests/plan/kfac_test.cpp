// K-FAC in Plans: what the strategy says, what each rank does, sends and waits for.
#include "linerate/plan/kfac/kfac.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/doc/validate.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/kfac/curvature.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"
#include "sim/task_trace.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::plan {
namespace {

using doc::Content;
using doc::FactorSide;
using doc::TaskKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kAll[] = {"kfac(d)",      "kfac(mpd)", "kfac(mem)",
                            "kfac(hybrid)", "kfac(spd)", "kfac(dp)"};

/// Six layers of a weight and a bias each, of very different sizes.
doc::Workload workload() {
  struct Shape {
    std::int64_t in, out;
  };
  const Shape shapes[] = {{30, 64}, {64, 700}, {700, 16}, {16, 400}, {400, 400}, {400, 10}};
  doc::Workload w;
  w.name = "six layers";
  double forward_s = 0;
  for (const auto& [in, out] : shapes) {
    const int layer = static_cast<int>(w.layers.size());
    const double seconds = 1e-8 * static_cast<double>(in * out);
    w.layers.push_back({fmt::format("fc{}", layer), "linear", seconds, {}, 0});
    w.blocks.push_back({.layer = layer, .a = in + 1, .g = out, .rows_a = 64, .rows_g = 64});
    forward_s += seconds;
  }
  for (int layer = 5; layer >= 0; --layer) {
    const auto [in, out] = shapes[layer];
    w.backward_s += 2e-8 * static_cast<double>(in * out);
    const std::string name = w.layers[static_cast<std::size_t>(layer)].name;
    w.gradients.push_back({.name = name + ".bias",
                           .elements = out,
                           .layer = layer,
                           .registration = 2 * layer + 1,
                           .ready_s = w.backward_s});
    w.gradients.push_back({.name = name + ".weight",
                           .elements = in * out,
                           .layer = layer,
                           .registration = 2 * layer,
                           .ready_s = w.backward_s,
                           .rows = out});
  }
  w.forward_s = forward_s, w.update_s = 1e-4;
  return w;
}

doc::Cluster cluster() {
  doc::Cluster c = support::two_rank_cluster(1e-5, 1e-10);
  c.second_order = support::second_order_cost();
  return c;
}

/// With new factors and inverses in each step, unless it says otherwise.
doc::Strategy every_step(const std::string& text) {
  doc::Strategy strategy = with_exchange(doc::parse_strategy(text));
  for (doc::Component& extra : strategy.extras)
    if (is(extra, Extra::curvature) && !extra.find("factors") && !extra.find("inverses"))
      extra.options.emplace_back("factors", "1");
  return strategy;
}

doc::Plan planned(const std::string& strategy, int ranks, const PlanOptions& options = {},
                  const doc::Workload& w = workload()) {
  return make_plan(w, cluster(), every_step(strategy), ranks, options);
}

PlanOptions training() {
  PlanOptions options;
  options.housekeeping = Housekeeping{100};
  return options;
}

std::string message_of(const std::string& strategy, int ranks = 4) {
  try {
    planned(strategy, ranks);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

const doc::Payload& payload_of(const doc::TaskGraph& g, const doc::Task& t) {
  return g.payloads[static_cast<std::size_t>(t.first)];
}

// ---- the strategy ----

TEST(Kfac, WithoutAnExchangeItRunsAfterDdp) {
  const auto text = [](const char* strategy) {
    return make_plan(workload(), cluster(), doc::parse_strategy(strategy), 4, {}).strategy;
  };
  EXPECT_EQ(text("kfac(spd)"), "ddp+kfac(spd)");
  EXPECT_EQ(text("kfac(hybrid, fraction=0.25)"), "ddp+kfac(hybrid, fraction=0.25)");
  EXPECT_EQ(planned("kfac(spd)", 4).hash(), planned("ddp+kfac(spd)", 4).hash());
  EXPECT_TRUE(traits_of(doc::parse_strategy("kfac(mpd)")).changes_convergence);
}

/// Computation may wait while a bucket is coded and sent, as with PyTorch's hooks. Factors are then
/// packed after the decode, so their sum must not come before the bucket's later rounds.
TEST(Kfac, EveryCompressorThatComputationWaitsForHasAPlan) {
  for (const std::string& name : compress::compressors().names()) {
    doc::Cluster c = cluster();
    c.codecs.push_back({.name = name,
                        .encode_bytes_per_s = 1e9,
                        .decode_bytes_per_s = 1e9,
                        .on = doc::CodingPlace::alone});
    for (const char* exchange : {"bulk+", "ddp+", "ddp(bucket=64KiB)+", "wfbp+"})
      for (const std::string kfac : kAll)
        for (const char* small : {"dense_below=0", "dense_below=4096"}) {
          const doc::Strategy s =
              every_step(fmt::format("{}{}({})+{}", exchange, name, small, kfac));
          EXPECT_NO_THROW(doc::validate(make_plan(workload(), c, s, 4, {}))) << doc::to_text(s);
        }
  }
}

TEST(Kfac, ReadsItsOptions) {
  const Kfac kfac = Kfac::parse(doc::parse_component(
      "kfac(spd, fusion=greedy, placement=lbp2021, theta=1024, factors=10, inverses=100)"));
  EXPECT_EQ(kfac.sharing, Sharing::spd);
  EXPECT_EQ(kfac.fusion, FactorFusion::greedy);
  EXPECT_EQ(kfac.placement, InversePlacement::threshold);
  EXPECT_EQ(kfac.theta, 1024);
  EXPECT_EQ(kfac.factor_interval, 10);
  EXPECT_EQ(kfac.inverse_interval, 100);
  EXPECT_TRUE(kfac.clips);
  const Kfac mpd = Kfac::parse(doc::parse_component("kfac(mpd)"));
  EXPECT_EQ(mpd.fusion, FactorFusion::bulk);
  EXPECT_EQ(mpd.placement, InversePlacement::longest_first);
  const auto intervals = [](const char* text) {
    const Kfac k = Kfac::parse(doc::parse_component(text));
    return std::pair(k.factor_interval, k.inverse_interval);
  };
  EXPECT_EQ(intervals("kfac(d)"), (std::pair<std::int64_t, std::int64_t>(10, 100)));
  EXPECT_EQ(intervals("kfac(d, factors=5)"), (std::pair<std::int64_t, std::int64_t>(5, 5)));
  EXPECT_EQ(intervals("kfac(d, inverses=5)"), (std::pair<std::int64_t, std::int64_t>(1, 5)));
  EXPECT_FALSE(mpd.eigen);
  EXPECT_TRUE(Kfac::parse(doc::parse_component("kfac(mpd, inverse=eigen)")).eigen);
  EXPECT_FALSE(Kfac::parse(doc::parse_component("kfac(spd, clip=off)")).clips);
  EXPECT_FALSE(Kfac::parse(doc::parse_component("kfac(spd, kl=0)")).clips);
}

TEST(Kfac, RefusesWhatItCannotDoAndSaysWhatCan) {
  EXPECT_THAT(message_of("kfac(spq)"), HasSubstr("expected one of d, mpd, mem, hybrid, spd, dp"));
  EXPECT_THAT(message_of("kfac(spd, fusoin=greedy)"), HasSubstr("did you mean \"fusion\"?"));
  EXPECT_THAT(message_of("kfac(d, fusion=optimal)"), HasSubstr("expected one of bulk, none"));
  EXPECT_THAT(message_of("kfac(d, placement=lpt)"), HasSubstr("inverts everything on every rank"));
  EXPECT_THAT(message_of("kfac(dp, fusion=none)"), HasSubstr("sends no factors"));
  EXPECT_THAT(message_of("kfac(d, broadcasts=fused)"),
              HasSubstr("sends neither inverses nor directions"));
  EXPECT_THAT(message_of("kfac(spd, theta=1000)"), HasSubstr("placement=lbp2021"));
  EXPECT_THAT(message_of("kfac(spd, fraction=0.5)"), HasSubstr("kfac(hybrid)"));
  EXPECT_THAT(message_of("kfac(hybrid, fraction=0)"), HasSubstr("above 0"));
  EXPECT_THAT(message_of("kfac(hybrid)", 5), HasSubstr("do not divide"));
  EXPECT_THAT(message_of("kfac(spd, factors=0)"), HasSubstr("expected 1 to"));
  EXPECT_THAT(message_of("kfac(spd, factors=3, inverses=10)"),
              HasSubstr("expected a multiple of factors=3"));
  EXPECT_THAT(message_of("kfac(spd, inverse=qr)"), HasSubstr("expected one of cholesky, eigen"));
  EXPECT_THAT(message_of("kfac(spd, kl=-1)"), HasSubstr("clips nothing"));
  EXPECT_THAT(message_of("kfac(spd, clip=on, kl=0)"), HasSubstr("above 0"));
  for (const char* gone : {"on", "off"})
    EXPECT_THAT(message_of(fmt::format("kfac(spd, lm={})", gone)),
                AllOf(HasSubstr("lm"), HasSubstr("say damping=")));
  EXPECT_THAT(message_of("kfac(spd, fisher=exact)"), HasSubstr("fisher=mc draws labels"));
  EXPECT_THAT(message_of("kfac(spd, clip=off, kl=0.1)"), HasSubstr("leave it out"));
  EXPECT_THAT(message_of("ddp+kfac(spd)+kfac(d)"), HasSubstr("expected kfac once"));
  EXPECT_THAT(message_of("ddp+fp16+topk+kfac(spd)"), HasSubstr("one codec or compressor"));
}

TEST(Kfac, WhatItAdvisesIsAccepted) {
  for (const int ranks : {3, 5, 7, 12}) {
    const std::string message = message_of("kfac(hybrid, fraction=0.72)", ranks);
    const std::size_t at = message.find("such as fraction=");
    ASSERT_NE(at, std::string::npos) << ranks << ": " << message;
    const std::string advised = fmt::format("kfac(hybrid, {})", message.substr(at + 8));
    EXPECT_NO_THROW(planned(advised, ranks)) << advised;
  }
  EXPECT_EQ(Kfac::parse(doc::parse_component("kfac(hybrid, fraction=1/4)")).fraction, 0.25);
  EXPECT_THAT(message_of("kfac(hybrid, fraction=1/0)"), HasSubstr("expected a number"));
}

TEST(Kfac, WithoutBlocksItSaysWhatToDo) {
  doc::Workload w = workload();
  w.blocks.clear();
  try {
    planned("kfac(spd)", 2, {}, w);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("\"six layers\""));
    EXPECT_THAT(e.what(), HasSubstr("zoo:"));
  }
  w = workload();
  for (doc::Block& b : w.blocks) b = {.layer = b.layer, .kind = doc::BlockKind::unit_wise, .g = 3};
  EXPECT_THROW(planned("kfac(spd)", 2, {}, w), UsageError);
  EXPECT_NO_THROW(planned("kfac(spd, norms=on)", 2, {}, w));
}

TEST(Kfac, LeavesLayersWithLargerFactorsOutAndNamesThem) {
  const auto blocks = [](const std::string& strategy) {
    return planned(strategy, 2).blocks.size();
  };
  EXPECT_EQ(blocks("kfac(spd)"), 6u);
  EXPECT_EQ(blocks("kfac(spd, largest=700)"), 5u);  // 701 inputs with the bias
  EXPECT_EQ(blocks("kfac(spd, largest=699)"), 4u);  // and 700 outputs
  EXPECT_THAT(message_of("kfac(spd, largest=10)"), HasSubstr("largest="));
  EXPECT_THAT(message_of("kfac(spd, largest=0)"), HasSubstr("at least 1"));
  const Planner planner(doc::parse_strategy("kfac(spd, largest=699)"), cluster());
  EXPECT_THAT(
      planner.caveats(workload(), cost::CostModel(cluster()), 2),
      ElementsAre("kfac: left to the optimizer, because a factor is larger than largest=699: "
                  "fc1 (700 x 700), fc2 (701 x 701)"));
  doc::Workload large = workload();
  large.blocks[0].a = kLargestFactor + 1;
  EXPECT_EQ(planned("kfac(spd)", 2, {}, large).blocks.size(), 5u);
}

TEST(Kfac, DearNeedsItsClipOffAndDirectionsThatStay) {
  EXPECT_THAT(message_of("dear+kfac(spd)"), HasSubstr("clip=off"));
  EXPECT_THAT(message_of("dear+kfac(mem, clip=off)"), HasSubstr("take kfac(spd)"));
  EXPECT_NO_THROW(planned("dear+kfac(spd, clip=off)", 4));
  EXPECT_NO_THROW(planned("dear+kfac(spd, kl=0)", 4));
}

TEST(Kfac, SaysWhatItCountsAsFree) {
  const auto caveats = [](const char* strategy, const doc::Cluster& c, int ranks) {
    return Planner(doc::parse_strategy(strategy), c).caveats(workload(), cost::CostModel(c), ranks);
  };
  EXPECT_THAT(caveats("kfac(spd)", support::two_rank_cluster(1e-5, 1e-10), 4),
              ::testing::Contains(HasSubstr("counts as taking no time")));
  EXPECT_THAT(caveats("kfac(dp)", cluster(), 8),
              ::testing::Contains(HasSubstr("8 ranks share 6 layers")));
  EXPECT_TRUE(caveats("kfac(spd)", cluster(), 8).empty());
  EXPECT_THAT(caveats("kfac(spd, inverse=eigen)", cluster(), 8),
              ::testing::Contains(HasSubstr("those of eigendecompositions")));
}

// ---- volumes: what each strategy computes and sends ----

struct Volumes {
  std::int64_t factors = 0, inverses = 0, directions = 0;
};

/// V_f and V_u, packed elements.
Volumes of_blocks(const doc::Plan& plan) {
  Volumes v;
  for (const doc::Block& b : plan.blocks) {
    v.factors += packed_elements(b, FactorSide::a) + packed_elements(b, FactorSide::g);
    v.directions += gradient_elements(b);
  }
  v.inverses = v.factors;
  return v;
}

/// Elements in collectives that a rank takes part in; of factors without their counts, of inverses
/// without the status.
Volumes sent(const doc::Plan& plan, const doc::TaskGraph& g, std::int32_t rank) {
  Volumes v;
  for (const doc::Task& t : g.tasks) {
    if (!doc::is_communication(t.kind) || !plan.group_of(t).holds(rank)) continue;
    const doc::Payload& p = payload_of(g, t);
    EXPECT_EQ(t.bytes, p.bytes());
    if (p.content == Content::factors)
      v.factors += p.elements - (p.end - p.begin) * doc::kFactorCounts;
    if (p.content == Content::inverse)
      v.inverses += p.elements - (p.end - p.begin) * doc::kInverseStatus;
    if (p.content == Content::directions) v.directions += p.elements;
  }
  return v;
}

TEST(KfacPlans, SendWhatTheMatrixOfStrategiesSays) {
  for (const int ranks : {1, 2, 4, 6, 8})
    for (const std::string strategy : kAll)
      for (const PlanOptions& options : {PlanOptions{}, training()}) {
        const doc::Plan plan = planned(strategy, ranks, options);
        const Volumes all = of_blocks(plan);
        const std::string name = strategy.substr(5, strategy.size() - 6);
        Volumes column;  // summed over ranks
        for (int rank = 0; rank < ranks; ++rank) {
          const Volumes v = sent(plan, plan.variants.back(), rank);
          const auto place = fmt::format("{} on {}, rank {}", strategy, ranks, rank);
          EXPECT_EQ(v.factors, name == "dp" ? 0 : all.factors) << place;
          if (name == "d" || name == "mem" || name == "dp") {
            EXPECT_EQ(v.inverses, 0) << place;
          }
          if (name == "mpd") {
            EXPECT_EQ(v.inverses, ranks > 1 ? all.inverses : 0) << place;
          }
          if (name == "spd") {
            EXPECT_LE(v.inverses, all.inverses) << place;
          }
          const bool owned = name == "mem" || name == "dp" || (name == "hybrid" && ranks > 1);
          const bool travels = owned && ranks > (name == "hybrid" ? ranks / 2 : 1);
          EXPECT_EQ(v.directions, travels ? all.directions : 0) << place;
          column.inverses += v.inverses;
        }
        // Half of the ranks hold a layer's inverses; one alone does not send them.
        if (name == "hybrid") {
          EXPECT_EQ(column.inverses, ranks > 2 ? ranks / 2 * all.inverses : 0) << ranks;
        }
      }
}

/// Vectors and values in place of a triangle, and a status behind them.
TEST(KfacPlans, SendEigenvectorsAndEigenvalues) {
  for (const char* sharing : {"mpd", "hybrid", "spd, placement=lpt"}) {
    const auto strategy = [&](const char* how) {
      return fmt::format("kfac({}, inverse={})", sharing, how);
    };
    const doc::Plan eigen = planned(strategy("eigen"), 4), other = planned(strategy("cholesky"), 4);
    const doc::TaskGraph& g = eigen.variants.back();
    int messages = 0;
    for (const doc::Task& t : g.tasks) {
      if (t.kind != TaskKind::broadcast) continue;
      const doc::Payload& p = payload_of(g, t);
      ASSERT_NE(p.content, Content::inverse);
      if (p.content != Content::eigen) continue;
      ++messages;
      std::int64_t elements = doc::kInverseStatus;
      for (std::int32_t m = p.begin; m < p.end; ++m) {
        const std::int32_t f = g.members[static_cast<std::size_t>(m)];
        const doc::Block& b = eigen.blocks[static_cast<std::size_t>(doc::block_of_factor(f))];
        const std::int64_t d = b.dimension(doc::side_of_factor(f));
        elements += d * d + d;
      }
      EXPECT_EQ(p.elements, elements);
      EXPECT_EQ(t.bytes, 4 * elements);
    }
    EXPECT_GT(messages, 0) << sharing;
    EXPECT_NE(eigen.hash(), other.hash());
    const auto step_s = [](const doc::Plan& plan) {
      return sim::simulate(plan, cost::CostModel(cluster())).step_s;
    };
    EXPECT_GT(step_s(eigen), step_s(other)) << sharing;
    const doc::Plan back = doc::plan_from_json(doc::to_json(eigen), "p.json");
    EXPECT_EQ(back.hash(), eigen.hash());
  }
}

// ---- who computes what ----

/// How often each rank runs a kind of task, by what it is about.
std::map<std::int32_t, int> counts(const doc::Plan& plan, const doc::TaskGraph& g, TaskKind kind,
                                   std::string_view operation, std::int32_t rank) {
  std::map<std::int32_t, int> all;
  for (const doc::Task& t : g.tasks)
    if (t.kind == kind && plan.operation_name(t) == operation && plan.group_of(t).holds(rank))
      for (std::int32_t i = t.first; i <= t.last; ++i) ++all[i];
  return all;
}

TEST(KfacPlans, EveryFactorIsComputedAndEveryInverseMadeWhereItIsUsed) {
  for (const int ranks : {1, 2, 4, 6})
    for (const std::string strategy : kAll) {
      const doc::Plan plan = planned(strategy, ranks);
      const doc::TaskGraph& g = plan.variants.back();
      std::vector<int> made(12), held(12), computed(12);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto inverses = counts(plan, g, TaskKind::inverse, "inverse", rank);
        const auto factors = counts(plan, g, TaskKind::factor, "autograd", rank);
        const auto directions = counts(plan, g, TaskKind::precondition, "precondition", rank);
        std::set<std::int32_t> has;
        for (const auto& [f, times] : inverses) {
          EXPECT_EQ(times, 1);
          has.insert(f);
          ++made[static_cast<std::size_t>(f)];
        }
        for (const doc::Task& t : g.tasks)
          if (t.kind == TaskKind::broadcast && payload_of(g, t).content == Content::inverse &&
              plan.group_of(t).holds(rank))
            has.insert(g.members.begin() + payload_of(g, t).begin,
                       g.members.begin() + payload_of(g, t).end);
        // Whoever preconditions a layer has both inverses.
        for (const auto& [f, times] : directions) {
          EXPECT_EQ(times, 1);
          EXPECT_TRUE(has.contains(f)) << strategy << " on " << ranks << ", rank " << rank;
          ++held[static_cast<std::size_t>(f)];
        }
        for (const auto& [f, times] : factors) ++computed[static_cast<std::size_t>(f)];
      }
      for (std::size_t f = 0; f < 12; ++f) {
        EXPECT_GE(made[f], 1) << strategy;
        const bool one = strategy == "kfac(mem)" || strategy == "kfac(dp)";
        EXPECT_EQ(held[f], one ? 1 : strategy == "kfac(hybrid)" ? std::max(1, ranks / 2) : ranks);
        EXPECT_EQ(computed[f], strategy == "kfac(dp)" ? 1 : ranks) << strategy;
      }
    }
}

/// Whose samples a factor sees decides on weights: two runs that measured other times must agree.
TEST(KfacPlans, NoMeasuredTimeDecidesOnDpsOwners) {
  const Kfac dp = *kfac_of(doc::parse_strategy("kfac(dp)"));
  const auto owners = [&](const doc::Workload& w, const doc::Cluster& c) {
    return curvature_of(dp, w, cost::CostModel(c), 4, "kfac(dp)").layer_owner;
  };
  doc::Cluster unknown = cluster();
  unknown.second_order.reset();
  const std::vector<std::int32_t> expected = owners(workload(), unknown);
  EXPECT_GT(std::set<std::int32_t>(expected.begin(), expected.end()).size(), 1u);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::uint64_t drawn = 0;
    const auto seconds = [&] { return 1e-3 * random_unit(seed, drawn++); };
    doc::Workload w = workload();
    doc::Cluster c = cluster();
    for (doc::Block& b : w.blocks) b.factor_a_s = seconds(), b.factor_g_s = seconds();
    for (const std::int64_t dim : {10, 17, 31, 64, 65, 400, 401, 700, 701})
      c.second_order->inverses.push_back({dim, seconds()});
    EXPECT_EQ(owners(w, c), expected) << seed;
  }
}

TEST(KfacPlans, RootsAreTheRanksThatDidTheWork) {
  for (const int ranks : {2, 4, 6})
    for (const std::string strategy : kAll) {
      const doc::Plan plan = planned(strategy, ranks);
      const doc::TaskGraph& g = plan.variants.back();
      for (const doc::Task& t : g.tasks) {
        if (t.kind != TaskKind::broadcast) continue;
        const doc::Payload& p = payload_of(g, t);
        const bool inverse = p.content == Content::inverse;
        // In every part the root has done what it sends.
        const auto& parts = plan.group_of(t).parts;
        for (std::size_t part = 0; part < std::max<std::size_t>(1, parts.size()); ++part) {
          const std::int32_t rank =
              parts.empty() ? t.root : parts[part][static_cast<std::size_t>(t.root)];
          const auto done = inverse ? counts(plan, g, TaskKind::inverse, "inverse", rank)
                                    : counts(plan, g, TaskKind::precondition, "precondition", rank);
          for (std::int32_t m = p.begin; m < p.end; ++m) {
            const std::int32_t member = g.members[static_cast<std::size_t>(m)];
            EXPECT_TRUE(done.contains(inverse ? member : doc::factor_index(member, FactorSide::a)))
                << strategy << " on " << ranks << ", rank " << rank;
          }
        }
      }
    }
}

// ---- order ----

/// Whether `later` comes after `earlier`, through edges and the order of lanes.
class Order {
 public:
  explicit Order(const doc::TaskGraph& g) : before_(g.tasks.size()) {
    std::array<int, doc::kLanes> last;
    last.fill(-1);
    for (std::size_t i = 0; i < g.tasks.size(); ++i) {
      before_[i].resize(g.tasks.size());
      int& lane = last[static_cast<std::size_t>(g.tasks[i].resource)];
      if (lane >= 0) add(i, static_cast<std::size_t>(lane));
      for (const std::uint32_t p : g.predecessors(i)) add(i, p);
      lane = static_cast<int>(i);
    }
  }
  bool operator()(std::size_t earlier, std::size_t later) const { return before_[later][earlier]; }

 private:
  void add(std::size_t i, std::size_t p) {
    before_[i][p] = true;
    for (std::size_t k = 0; k < p; ++k)
      if (before_[p][k]) before_[i][k] = true;
  }
  std::vector<std::vector<bool>> before_;
};

TEST(KfacPlans, EachPartWaitsForTheOneBefore) {
  for (const std::string strategy : kAll)
    for (const std::string exchange :
         {"ddp(first=1KiB, bucket=64KiB)", "bulk", "horovod(timer=clock, cycle=1ms)",
          "ddp(wire=fp16)", "ddp+topk", "ddp(bucket=64KiB)+powersgd(rank=2)",
          "ddp(bucket=64KiB)+codec(ratio=8, encode=1GB/s, decode=1GB/s, on=compute)"})
      for (const PlanOptions& options : {PlanOptions{}, training()})
        for (const doc::TaskGraph& g : planned(exchange + "+" + strategy, 4, options).variants) {
          const doc::Plan plan = planned(exchange + "+" + strategy, 4, options);
          const Order comes_before(g);
          const auto find = [&](TaskKind kind, std::string_view operation) {
            std::vector<std::size_t> found;
            for (std::size_t i = 0; i < g.tasks.size(); ++i)
              if (g.tasks[i].kind == kind && plan.operation_name(g.tasks[i]) == operation)
                found.push_back(i);
            return found;
          };
          const auto clip = find(TaskKind::precondition, "clip");
          const auto update = find(TaskKind::update, "optimizer");
          ASSERT_EQ(clip.size(), 1u);
          ASSERT_EQ(update.size(), 1u);
          EXPECT_TRUE(comes_before(clip.front(), update.front()));
          for (const std::size_t p : find(TaskKind::precondition, "precondition")) {
            EXPECT_TRUE(comes_before(p, clip.front()));
            for (std::size_t i = 0; i < g.tasks.size(); ++i) {
              const doc::Task& t = g.tasks[i];
              if (t.kind == TaskKind::inverse && t.first >= g.tasks[p].first &&
                  t.last <= g.tasks[p].last) {
                EXPECT_TRUE(comes_before(i, p));
              }
              // Whole gradients: every bucket that holds one of its layer.
              if (!doc::is_communication(t.kind) || t.subject != doc::Subject::payloads) continue;
              const auto gradients = gradients_of(plan, g, t);
              const std::int32_t layer =
                  plan.blocks[static_cast<std::size_t>(g.tasks[p].first / 2)].layer;
              const bool needed =
                  std::any_of(gradients.begin(), gradients.end(), [&](std::int32_t position) {
                    return plan.gradient_layer[static_cast<std::size_t>(position)] == layer;
                  });
              if (needed) {
                EXPECT_TRUE(comes_before(i, p)) << strategy << ", " << g.name;
              }
            }
          }
          for (const std::size_t d : find(TaskKind::copy, "unpack-directions"))
            EXPECT_TRUE(comes_before(d, clip.front()));
        }
}

/// Contents of collectives in their order on the network: G gradients, A and B factors of inputs
/// and outputs, F factors of both, I inverses, D directions.
std::string network(const doc::Plan& plan, const doc::TaskGraph& g) {
  std::string order;
  for (const doc::Task& t : g.tasks) {
    if (!doc::is_communication(t.kind)) continue;
    const doc::Payload& p = payload_of(g, t);
    if (p.content == Content::gradients) order += 'G';
    if (p.content == Content::inverse) order += 'I';
    if (p.content == Content::directions) order += 'D';
    if (p.content != Content::factors) continue;
    std::set<FactorSide> sides;
    for (std::int32_t m = p.begin; m < p.end; ++m)
      sides.insert(doc::side_of_factor(g.members[static_cast<std::size_t>(m)]));
    order += sides.size() == 2 ? 'F' : *sides.begin() == FactorSide::a ? 'A' : 'B';
  }
  EXPECT_EQ(plan.ranks > 1 || order.find('I') == std::string::npos, true);
  return order;
}

TEST(KfacPlans, FactorsTravelBetweenTheGradientsAsTheyGetReady) {
  const auto order = [](const std::string& strategy) {
    const doc::Plan plan = planned("ddp(first=1KiB, bucket=64KiB)+" + strategy, 2);
    return network(plan, plan.variants.back());
  };
  // One factor a message: all A under forward, each G behind its own layer's bucket.
  const std::string each = order("kfac(spd, fusion=none, placement=lpt)");
  EXPECT_EQ(each.substr(0, 6), "AAAAAA");
  EXPECT_EQ(std::count(each.begin(), each.end(), 'B'), 6);
  EXPECT_LT(each.find('B'), each.rfind('G'));
  EXPECT_EQ(each.substr(each.size() - 12), "IIIIIIIIIIII");
  const std::string bulk = order("kfac(spd, fusion=bulk, placement=lpt)");
  EXPECT_EQ(std::count(bulk.begin(), bulk.end(), 'A'), 1);
  EXPECT_EQ(std::count(bulk.begin(), bulk.end(), 'B'), 1);
  EXPECT_EQ(bulk.front(), 'A');
  // Behind the gradients, in one message.
  const std::string mpd = order("kfac(mpd)");
  EXPECT_EQ(mpd.substr(mpd.find('F')), "FIIIIIIIIIIII");
  EXPECT_EQ(order("kfac(dp)").find_first_of("ABFI"), std::string::npos);
  const std::string mem = order("kfac(mem)");
  EXPECT_EQ(mem.substr(mem.find('F')), "FDDDDDD");
}

double step_s(const std::string& strategy, int ranks, const PlanOptions& options = {},
              const doc::Cluster& c = cluster()) {
  const cost::CostModel model(c);
  PlanOptions priced = options;
  priced.cost = model;
  return sim::simulate(make_plan(workload(), c, every_step(strategy), ranks, priced), model).step_s;
}

/// Collectives of a rank in the order of its network.
std::vector<std::uint32_t> network_of(const doc::Plan& plan, const doc::TaskGraph& g, int rank) {
  return doc::VariantIndex(plan, g, rank).lanes[static_cast<std::size_t>(doc::Resource::network)];
}

/// Gradient positions of collectives, one behind the other.
std::vector<std::vector<std::int32_t>> gradients_sent(const doc::Plan& plan,
                                                      const doc::TaskGraph& g) {
  std::vector<std::vector<std::int32_t>> sent;
  for (const doc::Task& t : g.tasks)
    if (doc::is_communication(t.kind))
      if (auto positions = gradients_of(plan, g, t); !positions.empty())
        sent.push_back(std::move(positions));
  return sent;
}

// Over every exchange and way to share: ranks come to the collectives that they have in common in
// one order, gradients leave in the exchange's own, and each sum of factors stands behind whatever
// its members are packed after.
TEST(KfacPlans, FactorsAndGradientsLeaveInOneAgreedOrder) {
  for (const auto& exchange : exchanges().lines()) {
    const bool decoupled = exchanges().at(exchange.name).traits.needs_summable;
    for (const std::string sharing : {"d", "mpd", "mem", "hybrid", "spd", "dp", "spd, fusion=none",
                                      "mpd, broadcasts=fused", "mpd, fusion=none"}) {
      const bool owns = sharing == "mem" || sharing == "hybrid" || sharing == "dp";
      if (decoupled && owns) continue;
      const std::string strategy =
          exchange.name + "+kfac(" + sharing + (decoupled ? ", clip=off)" : ")");
      for (const PlanOptions& options : {PlanOptions{}, training()}) {
        const doc::Plan plan = planned(strategy, 4, options);
        const doc::Plan plain = planned(exchange.name, 4, options);
        ASSERT_EQ(plan.variants.size(), plain.variants.size()) << strategy;
        for (std::size_t v = 0; v < plan.variants.size(); ++v) {
          const doc::TaskGraph& g = plan.variants[v];
          EXPECT_EQ(gradients_sent(plan, g), gradients_sent(plain, plain.variants[v]))
              << strategy << ", " << g.name;
          for (int a = 0; a < 4; ++a)
            for (int b = a + 1; b < 4; ++b) {
              std::vector<std::uint32_t> of_a = network_of(plan, g, a),
                                         of_b = network_of(plan, g, b);
              const auto apart = [&](int other) {
                return [&plan, &g, other](std::uint32_t t) {
                  return !plan.group_of(g.tasks[t]).holds(other);
                };
              };
              std::erase_if(of_a, apart(b));
              std::erase_if(of_b, apart(a));
              EXPECT_EQ(of_a, of_b) << strategy << ", " << g.name;
            }
          const Order comes_before(g);
          for (std::uint32_t i = 0; i < g.tasks.size(); ++i) {
            const doc::Task& sum = g.tasks[i];
            if (sum.kind != TaskKind::all_reduce || sum.subject != doc::Subject::payloads) continue;
            const doc::Payload& p = payload_of(g, sum);
            if (p.content != Content::factors) continue;
            for (std::uint32_t k = 0; k < g.tasks.size(); ++k)
              for (std::int32_t m = p.begin; m < p.end; ++m)
                if (g.tasks[k].kind == TaskKind::factor &&
                    g.tasks[k].first == g.members[static_cast<std::size_t>(m)]) {
                  EXPECT_TRUE(comes_before(k, i)) << strategy << ", " << g.name;
                }
          }
        }
      }
    }
  }
}

/// Averages of factors and inverses, as rank 0 works through them.
struct Lane {
  std::vector<std::set<std::int32_t>> averages;  // so far, in front of each inverse
  std::vector<std::int32_t> inverses;
  std::set<std::int32_t> all;
};

Lane lane_of(const doc::Plan& plan, const doc::TaskGraph& g) {
  Lane lane;
  for (const doc::Task& t : g.tasks) {
    if (plan.operation_name(t) == "average-factors")
      for (std::int32_t m = payload_of(g, t).begin; m < payload_of(g, t).end; ++m)
        lane.all.insert(g.members[static_cast<std::size_t>(m)]);
    if (t.kind != TaskKind::inverse) continue;
    lane.averages.push_back(lane.all);
    lane.inverses.push_back(t.first);
  }
  return lane;
}

TEST(KfacPlans, AnInverseBeginsOnceTheAveragesOfItsLayerAreThere) {
  const doc::TaskGraph* g = nullptr;
  for (const std::string strategy :
       {"kfac(d, fusion=none)", "kfac(mpd, fusion=none)", "kfac(spd, fusion=none)",
        "kfac(spd, fusion=none, placement=lpt)", "kfac(hybrid, fusion=none)",
        "kfac(mem, fusion=none)", "kfac(spd, fusion=none, placement=lbp2021, theta=300)"})
    for (const PlanOptions& options : {PlanOptions{}, training()}) {
      doc::Cluster slow = cluster();
      slow.network.bandwidth_bytes_per_s = 1e8;
      const doc::Plan plan = make_plan(workload(), slow, every_step(strategy), 4, options);
      g = &plan.variants.back();
      const Lane lane = lane_of(plan, *g);
      ASSERT_EQ(lane.inverses.size(), 12u) << strategy;
      EXPECT_EQ(lane.all.size(), 12u);
      for (std::size_t i = 0; i < 12; ++i)
        for (const std::int32_t f : {lane.inverses[i] / 2 * 2, lane.inverses[i] / 2 * 2 + 1})
          EXPECT_TRUE(lane.averages[i].contains(f)) << strategy << ": " << lane.inverses[i];
      // The authors wait for all of them.
      const bool authors = strategy.find("lbp2021") != std::string::npos;
      EXPECT_EQ(lane.averages.front().size() == 12, authors) << strategy;
    }
}

/// With inverses of up to 4096 rows that take a quarter in calls of four.
doc::Cluster with_calls(doc::Cluster c) {
  c.second_order->batches = {{1, 4, 4e-4, 1e-4}, {4096, 4, 4, 1}};
  return c;
}

/// The calls of the solver on a rank: what its lane inverts at once. Every with-next is followed by
/// an inverse.
std::vector<std::vector<std::size_t>> calls_of(const doc::Plan& plan, const doc::TaskGraph& g,
                                               int rank) {
  std::vector<std::vector<std::size_t>> calls;
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < g.tasks.size(); ++i) {
    if (g.tasks[i].kind != TaskKind::inverse || !plan.group_of(g.tasks[i]).holds(rank)) continue;
    open.push_back(i);
    if (!doc::is_inverted_with_next(plan, g.tasks[i])) calls.push_back(std::exchange(open, {}));
  }
  EXPECT_TRUE(open.empty());
  return calls;
}

std::set<std::int32_t> sent_factors(const doc::TaskGraph& g) {
  std::set<std::int32_t> sent;
  for (const doc::Payload& p : g.payloads)
    if (doc::holds_inverses(p.content))
      sent.insert(g.members.begin() + p.begin, g.members.begin() + p.end);
  return sent;
}

TEST(KfacPlans, InversesOfOneSizeShareACallWhereThatIsSooner) {
  int shared = 0;
  for (const std::string strategy : kAll)
    for (const int ranks : {1, 2, 4})
      for (const PlanOptions& options : {PlanOptions{}, training()}) {
        const doc::Plan plan =
            make_plan(workload(), with_calls(cluster()), every_step(strategy), ranks, options);
        const doc::Plan alone = planned(strategy, ranks, options);
        const doc::TaskGraph& g = plan.variants.back();
        const auto sent = sent_factors(g);
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(counts(plan, g, TaskKind::inverse, "inverse", rank),
                    counts(alone, alone.variants.back(), TaskKind::inverse, "inverse", rank))
              << strategy;
          for (const std::vector<std::size_t>& call : calls_of(plan, g, rank)) {
            const doc::Task& last = g.tasks[call.back()];
            double seconds = 0;
            for (const std::size_t i : call) {
              const std::int32_t f = g.tasks[i].first;
              const doc::Block& block = plan.blocks[static_cast<std::size_t>(f / 2)];
              const doc::Block& of_last = plan.blocks[static_cast<std::size_t>(last.first / 2)];
              EXPECT_EQ(block.dimension(doc::side_of_factor(f)),
                        of_last.dimension(doc::side_of_factor(last.first)));
              seconds += doc::inverse_s(block, doc::side_of_factor(f), cluster().second_order);
              EXPECT_TRUE(call.size() == 1 || !sent.contains(f)) << strategy;
              EXPECT_TRUE(i == call.back() || g.tasks[i].seconds == 0);
            }
            EXPECT_LE(call.size(), 4u);
            EXPECT_DOUBLE_EQ(last.seconds, call.size() > 1 ? seconds / 4 : seconds) << strategy;
            shared += call.size() > 1;
          }
        }
        // Whoever waits for an inverse waits for its call.
        for (std::size_t i = 0; i < g.tasks.size(); ++i)
          for (const std::uint32_t p : g.predecessors(i))
            EXPECT_TRUE(!doc::is_inverted_with_next(plan, g.tasks[p]) ||
                        g.tasks[i].kind == TaskKind::inverse)
                << strategy;
      }
  EXPECT_GT(shared, 10);
}

TEST(KfacPlans, InversesShareNoCallThatWasNotMeasuredToBeSooner) {
  const auto with_next = [](const std::string& strategy, const doc::Cluster& c,
                            const doc::Workload& w = workload()) {
    const doc::Plan plan = make_plan(w, c, every_step(strategy), 2, {});
    const doc::TaskGraph& g = plan.variants.back();
    return std::count_if(g.tasks.begin(), g.tasks.end(),
                         [&](const doc::Task& t) { return doc::is_inverted_with_next(plan, t); });
  };
  EXPECT_EQ(with_next("kfac(d)", with_calls(cluster())), 2);
  EXPECT_EQ(with_next("kfac(d)", cluster()), 0);
  EXPECT_EQ(with_next("kfac(d, inverse=eigen)", with_calls(cluster())), 0);
  doc::Cluster slower = with_calls(cluster());
  for (doc::BatchSample& s : slower.second_order->batches) s.together_s = s.one_by_one_s;
  EXPECT_EQ(with_next("kfac(d)", slower), 0);
  doc::Cluster small = with_calls(cluster());
  small.second_order->batches.back().dim = 400;
  EXPECT_EQ(with_next("kfac(d)", small), 1);
  doc::Workload doubles = workload();
  for (doc::Gradient& gradient : doubles.gradients) gradient.dtype = DType::f64;
  EXPECT_EQ(with_next("kfac(d)", with_calls(cluster()), doubles), 0);
  // A factor that is there later than the first of a call begins another one.
  doc::Cluster slow = with_calls(cluster());
  slow.network.bandwidth_bytes_per_s = 1e8;
  const doc::Plan plan = make_plan(workload(), slow, every_step("kfac(d, fusion=none)"), 4, {});
  const Lane lane = lane_of(plan, plan.variants.back());
  ASSERT_EQ(lane.inverses.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_TRUE(lane.averages[i].contains(lane.inverses[i])) << lane.inverses[i];
}

TEST(KfacPlans, BroadcastsOfOneRootTravelTogetherWhereThatIsSooner) {
  const auto messages = [](const std::string& strategy, double latency_s) {
    doc::Cluster c = cluster();
    c.network.latency_s = latency_s;
    const doc::Plan plan = make_plan(workload(), c, every_step(strategy), 4, {});
    const std::string order = network(plan, plan.variants.back());
    return std::count_if(order.begin(), order.end(), [](char m) { return m == 'I' || m == 'D'; });
  };
  EXPECT_EQ(messages("kfac(mpd)", 1e-2), 12);  // as published
  EXPECT_EQ(messages("kfac(mpd, broadcasts=fused)", 1e-2), 4);
  EXPECT_EQ(messages("kfac(mpd, broadcasts=fused)", 0), 12);
  for (const std::string owned : {"mem", "dp"}) {
    EXPECT_EQ(messages("kfac(" + owned + ", broadcasts=single)", 1e-2), 6) << owned;
    EXPECT_LE(messages("kfac(" + owned + ")", 1e-2), 4) << owned;
  }
  EXPECT_LT(messages("kfac(hybrid)", 1e-2), messages("kfac(hybrid, broadcasts=single)", 1e-2));
}

TEST(KfacPlans, FusedBroadcastsAreNeverSlower) {
  for (const int ranks : {2, 4, 8})
    for (const double latency_s : {0.0, 1e-5, 1e-3, 1e-2})
      for (const std::string strategy : {"mpd", "mem", "dp", "hybrid", "spd"}) {
        doc::Cluster c = cluster();
        c.network.latency_s = latency_s;
        const auto seconds = [&](const char* broadcasts) {
          return step_s("kfac(" + strategy + ", broadcasts=" + broadcasts + ")", ranks, {}, c);
        };
        EXPECT_LE(seconds("fused"), seconds("single") * (1 + 1e-9))
            << strategy << " on " << ranks << ", " << latency_s;
      }
}

// ---- steps that differ ----

std::string schedule(const doc::Plan& plan, int steps) {
  std::string out;
  for (int s = 0; s < steps; ++s) out += plan.variant_of_step(s).name + " ";
  return out;
}

TEST(KfacPlans, StepsBringFactorsAndInversesUpToDateWhenTheyAreDue) {
  EXPECT_EQ(schedule(planned("kfac(spd)", 2), 3), "first-step steady steady ");
  EXPECT_EQ(schedule(planned("kfac(spd, factors=2, inverses=4)", 2), 9),
            "first-step steady.stale steady.factors steady.stale steady steady.stale "
            "steady.factors steady.stale steady ");
  EXPECT_EQ(schedule(planned("kfac(spd, inverses=2)", 2), 4),
            "first-step steady.factors steady steady.factors ");
  // acpsgd takes two kinds of step in turn, K-FAC three: six steps until both repeat.
  const doc::Plan both = planned("ddp+acpsgd+kfac(mem, factors=3)", 2);
  EXPECT_EQ(both.cycle.size(), 6u);
  EXPECT_THAT(both.variant_of_step(3).name, HasSubstr("steady."));
  EXPECT_THAT(both.variant_of_step(4).name, ::testing::EndsWith(".stale"));
}

TEST(KfacPlans, StaleStepsPreconditionAndNothingElse) {
  for (const std::string strategy : kAll) {
    const std::string often = strategy.substr(0, strategy.size() - 1) + ", factors=2, inverses=4)";
    const doc::Plan plan = planned(often, 4);
    for (const doc::TaskGraph& g : plan.variants) {
      std::set<TaskKind> kinds;
      for (const doc::Task& t : g.tasks) kinds.insert(t.kind);
      const bool stale = g.name.ends_with(".stale"),
                 fresh = !stale && !g.name.ends_with(".factors");
      EXPECT_EQ(kinds.contains(TaskKind::factor), !stale) << often << ", " << g.name;
      EXPECT_EQ(kinds.contains(TaskKind::inverse), fresh) << often << ", " << g.name;
      EXPECT_TRUE(kinds.contains(TaskKind::precondition));
      const bool owned =
          strategy == "kfac(mem)" || strategy == "kfac(hybrid)" || strategy == "kfac(dp)";
      EXPECT_EQ(network(plan, g).find('D') != std::string::npos, owned) << g.name;
    }
  }
}

TEST(KfacPlans, DearPreconditionsAtTheHeadOfTheNextStep) {
  const doc::Plan plan = planned("dear(layers=1)+kfac(spd, clip=off)", 4, training());
  for (const doc::TaskGraph& g : plan.variants) {
    int preconditions = 0;
    for (std::size_t i = 0; i < g.tasks.size(); ++i) {
      if (plan.operation_name(g.tasks[i]) != "precondition") continue;
      ++preconditions;
      // It waits for the all-gathers of the step before, whichever that was.
      for (const doc::TaskGraph& from : plan.variants) {
        std::set<std::int32_t> arrived;
        for (const doc::NextStepEdge& e : from.next_step)
          if (e.to == i && &plan.variants[static_cast<std::size_t>(e.variant)] == &g)
            for (const std::int32_t p : gradients_of(plan, from, from.tasks[e.from]))
              arrived.insert(p);
        const std::int32_t layer = g.tasks[i].first / 2;
        EXPECT_TRUE(arrived.contains(10 - 2 * layer) && arrived.contains(11 - 2 * layer));
      }
    }
    EXPECT_EQ(preconditions, g.name.starts_with(doc::kFirstStep) ? 0 : 6) << g.name;
  }
}

// ---- what it costs ----

TEST(KfacPlans, OwnRulesAreNeverSlowerThanTheAuthors) {
  for (const int ranks : {2, 4, 8, 16})
    for (const double bandwidth : {1e8, 1e9, 1e10, 1e11})
      for (const auto& [slowdown, tensor_s] :
           {std::pair{1.0, 0.0}, std::pair{1.5, 0.0}, std::pair{1.0, 1e-3}}) {
        doc::Cluster c = cluster();
        c.network.bandwidth_bytes_per_s = bandwidth;
        c.tensor_s = tensor_s;
        if (slowdown > 1) c.contention = doc::Contention{1, slowdown};
        const double spd = step_s("kfac(spd)", ranks, {}, c);
        for (const char* other :
             {"kfac(spd, fusion=greedy)", "kfac(spd, fusion=none)", "kfac(spd, fusion=bulk)",
              "kfac(spd, placement=lbp2021, theta=300)", "kfac(spd, placement=lpt)",
              "kfac(spd, placement=round-robin)", "kfac(d)", "kfac(mpd)"})
          EXPECT_LE(spd, step_s(other, ranks, {}, c) * (1 + 1e-9))
              << other << " on " << ranks << " at " << bandwidth << ", slowdown " << slowdown
              << ", a tensor " << tensor_s;
      }
}

/// A message costs this much at least.
doc::Cluster cluster_with(double latency_s, double bandwidth) {
  doc::Cluster c = cluster();
  c.network.latency_s = latency_s, c.network.bandwidth_bytes_per_s = bandwidth;
  return c;
}

TEST(KfacPlans, AreNoSlowerThanWithAllGradientsAtOnce) {
  const std::string optionses[] = {"factors=1", "factors=2, inverses=4",
                                   "factors=10, inverses=100"};
  for (const auto& exchange : exchanges().lines()) {
    if (exchanges().at(exchange.name).traits.needs_summable) continue;  // decoupled
    for (const std::string& options : optionses)
      for (const int ranks : {2, 4, 16})
        for (const double latency_s : {0.0, 1e-5, 1e-3})
          for (const double bandwidth : {1e8, 1e10}) {
            const doc::Cluster c = cluster_with(latency_s, bandwidth);
            const std::string kfac = "+kfac(spd, " + options + ")";
            EXPECT_LE(step_s(exchange.name + kfac, ranks, {}, c),
                      step_s("bulk" + kfac, ranks, {}, c) * (1 + 1e-9))
                << exchange.name << kfac << " on " << ranks << ", " << latency_s << " s, "
                << bandwidth;
          }
  }
}

TEST(KfacPlans, SendGradientsAtOnceInAllStepsOrInNone) {
  const auto sent = [](const std::string& strategy, double latency_s) {
    const doc::Cluster c = cluster_with(latency_s, 1e10);
    std::vector<std::vector<std::vector<std::int32_t>>> by_variant;
    const doc::Plan plan = make_plan(workload(), c, doc::parse_strategy(strategy), 4, training());
    for (const doc::TaskGraph& g : plan.variants) by_variant.push_back(gradients_sent(plan, g));
    return by_variant;
  };
  const std::string each = "wfbp+kfac(spd)", at_once = "bulk+kfac(spd)";
  const std::string authors = "wfbp+kfac(spd, fusion=greedy)";
  ASSERT_NE(sent(authors, 0), sent(at_once, 0));
  EXPECT_EQ(sent(each, 1e-2), sent(at_once, 1e-2));
  EXPECT_EQ(sent(each, 0), sent(authors, 0));
  EXPECT_EQ(sent(authors, 1e-2), sent(authors, 0));
}

/// Of one convolution of 1024 rows and one linear layer.
doc::Workload convolution() {
  doc::Workload w = workload();
  w.layers[0].kind = "conv2d";
  w.blocks[0].rows_a = w.blocks[0].rows_g = 1024;
  return w;
}

TEST(KfacPlans, FactorsOfConvolutionsLookAtOnePositionInSoManySquared) {
  const auto factor_s = [](const std::string& strategy) {
    const doc::Plan plan = planned(strategy, 4, {}, convolution());
    std::map<std::int32_t, double> seconds;
    for (const doc::Task& t : plan.variants.back().tasks)
      if (t.kind == TaskKind::factor) seconds[t.first] = t.seconds;
    return seconds;
  };
  const auto all = factor_s("kfac(d)"), some = factor_s("kfac(d, subsample=2)");
  const double fixed_s = support::second_order_cost().factor_fixed_s;
  for (const auto& [factor, seconds] : all) {
    const double share = doc::block_of_factor(factor) == 0 ? 0.25 : 1;
    EXPECT_NEAR(some.at(factor) - fixed_s, share * (seconds - fixed_s), 1e-12) << factor;
  }
}

TEST(Kfac, SaysWhatOfTrainingIsNotInThePrediction) {
  doc::Workload w = convolution();
  const auto notes = [&w](const std::string& strategy) {
    return join(
        Planner(doc::parse_strategy(strategy), cluster()).caveats(w, cost::CostModel(cluster()), 4),
        "; ");
  };
  EXPECT_EQ(notes("kfac(d, subsample=2)"), "");
  EXPECT_THAT(notes("kfac(d, fisher=mc)"), HasSubstr("one more backward pass"));
  w.blocks[0].factor_a_s = 1e-3;
  EXPECT_THAT(notes("kfac(d, subsample=2)"), HasSubstr("take as long as the Workload measured"));
}

TEST(KfacPlans, IntervalsAverageOverTheCycle) {
  const double each = step_s("kfac(d)", 4), never = [] {
    // Steps of the cycle in which nothing is brought up to date.
    const doc::Plan plan = planned("kfac(d, factors=4)", 4);
    doc::Plan stale = plan;
    stale.warm_up.clear();
    stale.cycle = {plan.variant_index("steady.stale")};
    return sim::simulate(stale, cost::CostModel(cluster())).step_s;
  }();
  EXPECT_LT(never, each);
  EXPECT_NEAR(step_s("kfac(d, factors=4)", 4), (each + 3 * never) / 4, 1e-12);
}

TEST(KfacPlans, WithoutItsPartsItIsTheExchangeAlone) {
  const cost::CostModel model(cluster());
  for (const std::string strategy : kAll)
    for (const std::string exchange : {"ddp(first=1KiB, bucket=64KiB)", "bulk"})
      for (const PlanOptions& options : {PlanOptions{}, training()}) {
        const doc::Plan plan = planned(exchange + "+" + strategy, 4, options);
        const auto step_with = [&](doc::StepPart last) {
          return sim::simulate(up_to(plan, last), model).step_s;
        };
        EXPECT_NEAR(step_with(doc::StepPart::gradient_communication),
                    sim::simulate(planned(exchange, 4, options), model).step_s, 1e-12);
        EXPECT_GT(step_with(doc::StepPart::factor_computation),
                  step_with(doc::StepPart::gradient_communication));
        EXPECT_GT(step_with(doc::StepPart::inverse_computation),
                  step_with(doc::StepPart::factor_communication));
        EXPECT_EQ(step_with(doc::StepPart::inverse_communication),
                  sim::simulate(plan, model).step_s);
      }
}

TEST(KfacPlans, OwnersOfLayersWorkAloneAndTheOthersWait) {
  const doc::Plan plan = planned("kfac(mem)", 4);
  double most_s = 0;
  for (const support::TracedTask& t : support::trace_tasks(plan, cost::CostModel(cluster()), 1)) {
    const doc::TaskGraph& g = plan.variant_of_step(0);
    if (g.tasks[t.task].kind == TaskKind::inverse) {
      EXPECT_TRUE(plan.group_of(g.tasks[t.task]).holds(t.rank));
      EXPECT_EQ(plan.group_of(g.tasks[t.task]).size_of_part(0, 4), 1);
    }
    if (g.tasks[t.task].kind == TaskKind::update) most_s = std::max(most_s, t.start_s);
  }
  for (const support::TracedTask& t : support::trace_tasks(plan, cost::CostModel(cluster()), 1))
    if (plan.variant_of_step(0).tasks[t.task].kind == TaskKind::update) {
      EXPECT_DOUBLE_EQ(t.start_s, most_s);  // directions of every layer have arrived
    }
}

/// Whole layers, by what an owner does for them in a step: no assignment is much better.
TEST(KfacPlans, OwnersOfDpLayersHaveAboutAsMuchToDo) {
  for (const int ranks : {2, 3, 4}) {
    const doc::Plan plan = planned("kfac(dp)", ranks);
    std::vector<double> layer_s(plan.blocks.size()), load_s(static_cast<std::size_t>(ranks));
    for (const doc::Task& t : plan.variants.back().tasks) {
      const bool owned = t.kind == TaskKind::factor || t.kind == TaskKind::inverse ||
                         plan.operation_name(t) == "precondition";
      if (!owned) continue;
      layer_s[static_cast<std::size_t>(doc::block_of_factor(t.first))] += t.seconds;
      const auto& part = plan.group_of(t).parts.at(0);
      ASSERT_EQ(part.size(), 1U);
      load_s[static_cast<std::size_t>(part.front())] += t.seconds;
    }
    double best_s = std::accumulate(layer_s.begin(), layer_s.end(), 0.0);
    const auto choices = static_cast<int>(std::pow(ranks, layer_s.size()));
    for (int choice = 0; choice < choices; ++choice) {
      std::vector<double> sums(static_cast<std::size_t>(ranks));
      int digits = choice;
      for (const double s : layer_s)
        sums[static_cast<std::size_t>(digits % ranks)] += s, digits /= ranks;
      best_s = std::min(best_s, *std::max_element(sums.begin(), sums.end()));
    }
    EXPECT_LE(*std::max_element(load_s.begin(), load_s.end()),
              best_s * (4.0 / 3 - 1.0 / (3 * ranks)) * (1 + 1e-12))
        << ranks;
  }
}

// ---- agreement ----

TEST(KfacPlans, AreTheSameOnEveryRankAndInTheirJson) {
  for (const std::string strategy : kAll)
    for (const PlanOptions& options : {PlanOptions{}, training()}) {
      const doc::Plan plan = planned(strategy, 4, options), again = planned(strategy, 4, options);
      EXPECT_EQ(plan.hash(), again.hash());
      EXPECT_EQ(doc::to_json(plan), doc::to_json(again));
      EXPECT_EQ(doc::plan_from_json(doc::to_json(plan), "p.json").hash(), plan.hash());
    }
}

TEST(KfacPlans, DiagonalsAndUnitsAreAveragedAndNotInverted) {
  doc::Workload w = workload();
  w.blocks[1].kind = doc::BlockKind::embedding;
  w.blocks[3] = {.layer = 3, .kind = doc::BlockKind::unit_wise, .g = 400};
  for (const std::string options : {"norms=on, embeddings=on", "norms=off"}) {
    const doc::Plan plan = planned("kfac(spd, " + options + ")", 2, {}, w);
    EXPECT_EQ(plan.blocks.size(), options == "norms=off" ? 4u : 6u);
    for (int rank = 0; rank < 2; ++rank) {
      std::set<std::int32_t> inverted;
      for (const doc::Task& t : plan.variants.back().tasks)
        if (t.kind == TaskKind::inverse) inverted.insert(t.first);
      EXPECT_EQ(inverted.size(), options == "norms=off" ? 8u : 9u);  // 4 A and 5 G
    }
    const Volumes v = sent(plan, plan.variants.back(), 0);
    EXPECT_EQ(v.factors, of_blocks(plan).factors);
  }
}

}  // namespace
}  // namespace linerate::plan
