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
#include "linerate/core/text.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/doc/validate.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/kfac/curvature.hpp"
#include "linerate/plan/planner.hpp"
#include "plan/planned.hpp"
#include "plan/random.hpp"
#include "support/message_of.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::plan {
namespace {

using doc::Content;
using doc::FactorSide;
using doc::TaskKind;
using support::payload_of;
using support::step_s;
using support::training;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

const char* const kSharings[] = {"d", "mpd", "mem", "hybrid", "spd", "dp"};

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
    const std::string name = w.layers[to_index(layer)].name;
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

/// Of 10 GB/s unless it says otherwise.
doc::Cluster cluster_with(double latency_s, double bandwidth = 1e10) {
  doc::Cluster c = cluster();
  c.network.latency_s = latency_s, c.network.bandwidth_bytes_per_s = bandwidth;
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
                  const doc::Workload& w = workload(), const doc::Cluster& c = cluster()) {
  return make_plan(w, c, every_step(strategy), ranks, options);
}

std::vector<std::string> caveats(const std::string& strategy, int ranks = 4,
                                 const doc::Cluster& c = cluster(),
                                 const doc::Workload& w = workload()) {
  return Planner(doc::parse_strategy(strategy), c).caveats(w, cost::CostModel(c), ranks);
}

std::string message_of(const std::string& strategy, int ranks = 4,
                       const doc::Workload& w = workload()) {
  return support::message_of([&] { return planned(strategy, ranks, {}, w); });
}

/// One way to share the work, planned.
struct Shared {
  std::string sharing;  // "spd"
  int ranks = 1;
  PlanOptions options;

  std::string strategy() const { return fmt::format("kfac({})", sharing); }
  doc::Plan plan = planned(strategy(), ranks, options);

  const doc::TaskGraph& graph() const { return plan.variants.back(); }
  bool has_layer_owners() const { return sharing == "mem" || sharing == "hybrid" || is_dp(); }
  bool is_dp() const { return sharing == "dp"; }
  /// How many ranks hold the inverses of a layer.
  int holders() const {
    return sharing == "hybrid" ? std::max(1, ranks / 2) : has_layer_owners() ? 1 : ranks;
  }
};

/// Every way to share on so many ranks, simulated and in training.
template <typename Check>
void for_every_sharing(const std::vector<int>& ranks, Check check) {
  for (const char* sharing : kSharings)
    for (const int n : ranks)
      for (const PlanOptions& options : {PlanOptions{}, training()}) {
        const Shared x{sharing, n, options};
        SCOPED_TRACE(fmt::format("{} on {}, {} variants", x.strategy(), n, x.plan.variants.size()));
        check(x);
      }
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
      for (const char* sharing : kSharings)
        for (const char* small : {"dense_below=0", "dense_below=4096"}) {
          const doc::Strategy s =
              every_step(fmt::format("{}{}({})+kfac({})", exchange, name, small, sharing));
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
  for (const auto& [text, factors, inverses] : {std::tuple{"kfac(d)", 10, 100},
                                                {"kfac(d, factors=5)", 5, 5},
                                                {"kfac(d, inverses=5)", 1, 5}}) {
    const Kfac k = Kfac::parse(doc::parse_component(text));
    EXPECT_EQ(k.factor_interval, factors) << text;
    EXPECT_EQ(k.inverse_interval, inverses) << text;
  }
  EXPECT_FALSE(mpd.eigen);
  EXPECT_TRUE(Kfac::parse(doc::parse_component("kfac(mpd, inverse=eigen)")).eigen);
  EXPECT_FALSE(Kfac::parse(doc::parse_component("kfac(spd, clip=off)")).clips);
  EXPECT_FALSE(Kfac::parse(doc::parse_component("kfac(spd, kl=0)")).clips);
}

TEST(Kfac, RefusesWhatItCannotDoAndSaysWhatCan) {
  struct Refused {
    const char *strategy, *said;
    int ranks = 4;
  };
  for (const auto& [strategy, said, ranks] :
       {Refused{"kfac(spq)", "expected one of d, mpd, mem, hybrid, spd, dp"},
        {"kfac(spd, fusoin=greedy)", "did you mean \"fusion\"?"},
        {"kfac(d, fusion=optimal)", "expected one of bulk, none"},
        {"kfac(d, placement=lpt)", "inverts everything on every rank"},
        {"kfac(dp, fusion=none)", "sends no factors"},
        {"kfac(d, broadcasts=fused)", "sends neither inverses nor directions"},
        {"kfac(spd, theta=1000)", "placement=lbp2021"},
        {"kfac(spd, fraction=0.5)", "kfac(hybrid)"},
        {"kfac(hybrid, fraction=0)", "above 0"},
        {"kfac(hybrid)", "do not divide", 5},
        {"kfac(spd, factors=0)", "expected 1 to"},
        {"kfac(spd, factors=3, inverses=10)", "expected a multiple of factors=3"},
        {"kfac(spd, inverse=qr)", "expected one of cholesky, eigen"},
        {"kfac(spd, kl=-1)", "clips nothing"},
        {"kfac(spd, clip=on, kl=0)", "above 0"},
        {"kfac(spd, lm=on)",
         "lm: linerate has no Levenberg-Marquardt damping; leave it out and say damping="},
        {"kfac(spd, lm=off)", "lm: linerate has no"},
        {"kfac(spd, fisher=exact)", "fisher=mc draws labels"},
        {"kfac(spd, clip=off, kl=0.1)", "leave it out"},
        {"ddp+kfac(spd)+kfac(d)", "expected kfac once"},
        {"ddp+fp16+topk+kfac(spd)", "one codec or compressor"},
        {"dear+kfac(spd)", "clip=off"},
        {"dear+kfac(mem, clip=off)", "take kfac(spd)"},
        {"kfac(hybrid, fraction=1/0)", "expected a number"},
        {"kfac(spd, largest=10)", "largest="},
        {"kfac(spd, largest=0)", "at least 1"}})
    EXPECT_THAT(message_of(strategy, ranks), HasSubstr(said)) << strategy;
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
}

TEST(Kfac, WithoutBlocksItSaysWhatToDo) {
  doc::Workload w = workload();
  w.blocks.clear();
  EXPECT_THAT(message_of("kfac(spd)", 2, w), AllOf(HasSubstr("\"six layers\""), HasSubstr("zoo:")));
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
  EXPECT_THAT(
      caveats("kfac(spd, largest=699)", 2),
      ElementsAre("kfac: left to the optimizer, because a factor is larger than largest=699: "
                  "fc1 (700 x 700), fc2 (701 x 701)"));
  doc::Workload large = workload();
  large.blocks[0].a = kLargestFactor + 1;
  EXPECT_EQ(planned("kfac(spd)", 2, {}, large).blocks.size(), 5u);
}

/// Of one convolution of 1024 rows and one linear layer.
doc::Workload convolution() {
  doc::Workload w = workload();
  w.layers[0].kind = "conv2d";
  w.blocks[0].rows_a = w.blocks[0].rows_g = 1024;
  return w;
}

TEST(Kfac, SaysWhatItCountsAsFreeAndWhatOfTrainingIsNotInThePrediction) {
  using ::testing::Contains;
  EXPECT_THAT(caveats("kfac(spd)", 4, support::two_rank_cluster(1e-5, 1e-10)),
              Contains(HasSubstr("counts as taking no time")));
  EXPECT_THAT(caveats("kfac(dp)", 8), Contains(HasSubstr("8 ranks share 6 layers")));
  EXPECT_THAT(caveats("kfac(spd)", 8), IsEmpty());
  EXPECT_THAT(caveats("kfac(spd, inverse=eigen)", 8),
              Contains(HasSubstr("those of eigendecompositions")));
  doc::Workload w = convolution();
  EXPECT_THAT(caveats("kfac(d, subsample=2)", 4, cluster(), w), IsEmpty());
  EXPECT_THAT(caveats("kfac(d, fisher=mc)", 4, cluster(), w),
              Contains(HasSubstr("one more backward pass")));
  w.blocks[0].factor_a_s = 1e-3;
  EXPECT_THAT(caveats("kfac(d, subsample=2)", 4, cluster(), w),
              Contains(HasSubstr("take as long as the Workload measured")));
}

// ---- volumes: what each strategy computes and sends ----

using Volumes = std::map<Content, std::int64_t>;

/// V_f and V_u, packed elements.
Volumes of_blocks(const doc::Plan& plan) {
  Volumes v;
  for (const doc::Block& b : plan.blocks) {
    v[Content::factors] += packed_elements(b, FactorSide::a) + packed_elements(b, FactorSide::g);
    v[Content::directions] += gradient_elements(b);
  }
  v[Content::inverse] = v[Content::factors];
  return v;
}

/// Elements in collectives that a rank takes part in; of factors without their counts, of inverses
/// without the status.
Volumes sent(const doc::Plan& plan, const doc::TaskGraph& g, std::int32_t rank) {
  const Volumes besides = {{Content::factors, doc::kFactorCounts},
                           {Content::inverse, doc::kInverseStatus},
                           {Content::directions, 0}};
  Volumes v;
  for (const doc::Task& t : g.tasks) {
    if (!doc::is_communication(t.kind) || !plan.group_of(t).holds(rank)) continue;
    const doc::Payload& p = payload_of(g, t);
    EXPECT_EQ(t.bytes, p.bytes());
    if (const auto own = besides.find(p.content); own != besides.end())
      v[p.content] += p.elements - (p.end - p.begin) * own->second;
  }
  return v;
}

TEST(KfacPlans, SendWhatTheMatrixOfStrategiesSays) {
  for_every_sharing({1, 2, 4, 6, 8}, [](const Shared& x) {
    Volumes all = of_blocks(x.plan);
    std::int64_t inverses = 0;  // over ranks
    for (int rank = 0; rank < x.ranks; ++rank) {
      Volumes v = sent(x.plan, x.graph(), rank);
      EXPECT_EQ(v[Content::factors], x.is_dp() ? 0 : all[Content::factors]) << rank;
      EXPECT_LE(v[Content::inverse], all[Content::inverse]) << rank;
      EXPECT_EQ(v[Content::directions], x.holders() < x.ranks ? all[Content::directions] : 0);
      inverses += v[Content::inverse];
    }
    if (x.sharing == "spd") return;  // sends as many as it likes
    // One rank that holds a layer's inverses alone does not send them.
    const bool sends = x.sharing != "d" && x.holders() > 1;
    EXPECT_EQ(inverses, sends ? x.holders() * all[Content::inverse] : 0);
  });
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
      for (const std::int32_t f : members_of(g, p)) {
        const doc::Block& b = eigen.blocks[to_index(doc::block_of_factor(f))];
        const std::int64_t d = b.dimension(doc::side_of_factor(f));
        elements += d * d + d;
      }
      EXPECT_EQ(p.elements, elements);
      EXPECT_EQ(t.bytes, 4 * elements);
    }
    EXPECT_GT(messages, 0) << sharing;
    EXPECT_NE(eigen.hash(), other.hash());
    EXPECT_GT(step_s(eigen, cluster()), step_s(other, cluster())) << sharing;
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
  for_every_sharing({1, 2, 4, 6}, [](const Shared& x) {
    const doc::TaskGraph& g = x.graph();
    std::vector<int> made(12), held(12), computed(12);
    for (int rank = 0; rank < x.ranks; ++rank) {
      std::set<std::int32_t> has;
      for (const auto& [f, times] : counts(x.plan, g, TaskKind::inverse, "inverse", rank)) {
        EXPECT_EQ(times, 1);
        has.insert(f);
        ++made[to_index(f)];
      }
      for (const doc::Task& t : g.tasks)
        if (t.kind == TaskKind::broadcast && payload_of(g, t).content == Content::inverse &&
            x.plan.group_of(t).holds(rank))
          for (const std::int32_t f : members_of(g, payload_of(g, t))) has.insert(f);
      // Whoever preconditions a layer has both inverses.
      for (const auto& [f, times] :
           counts(x.plan, g, TaskKind::precondition, "precondition", rank)) {
        EXPECT_EQ(times, 1);
        EXPECT_TRUE(has.contains(f)) << "rank " << rank;
        ++held[to_index(f)];
      }
      for (const auto& [f, times] : counts(x.plan, g, TaskKind::factor, "autograd", rank))
        ++computed[to_index(f)];
    }
    EXPECT_THAT(made, Each(testing::Ge(1)));
    if (x.has_layer_owners() && x.holders() == 1) {
      EXPECT_THAT(made, Each(1));
    }
    EXPECT_THAT(held, Each(x.holders()));
    EXPECT_THAT(computed, Each(x.is_dp() ? 1 : x.ranks));
  });
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
    support::Random random(seed);
    const auto seconds = [&] { return 1e-3 * random.unit(); };
    doc::Workload w = workload();
    doc::Cluster c = cluster();
    for (doc::Block& b : w.blocks) b.factor_a_s = seconds(), b.factor_g_s = seconds();
    for (const std::int64_t dim : {10, 17, 31, 64, 65, 400, 401, 700, 701})
      c.second_order->inverses.push_back({dim, seconds()});
    EXPECT_EQ(owners(w, c), expected) << seed;
  }
}

TEST(KfacPlans, RootsAreTheRanksThatDidTheWork) {
  for_every_sharing({2, 4, 6}, [](const Shared& x) {
    const doc::TaskGraph& g = x.graph();
    for (const doc::Task& t : g.tasks) {
      if (t.kind != TaskKind::broadcast) continue;
      const bool inverse = payload_of(g, t).content == Content::inverse;
      // In every part the root has done what it sends.
      const auto& parts = x.plan.group_of(t).parts;
      for (std::size_t part = 0; part < std::max<std::size_t>(1, parts.size()); ++part) {
        const std::int32_t rank = parts.empty() ? t.root : parts[part][to_index(t.root)];
        const auto done = inverse ? counts(x.plan, g, TaskKind::inverse, "inverse", rank)
                                  : counts(x.plan, g, TaskKind::precondition, "precondition", rank);
        for (const std::int32_t member : members_of(g, payload_of(g, t)))
          EXPECT_TRUE(done.contains(inverse ? member : doc::factor_index(member, FactorSide::a)))
              << "rank " << rank;
      }
    }
  });
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
      int& lane = last[to_index(g.tasks[i].resource)];
      if (lane >= 0) add(i, to_index(lane));
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
  for (const std::string sharing : kSharings)
    for (const std::string exchange :
         {"ddp(first=1KiB, bucket=64KiB)", "bulk", "horovod(timer=clock, cycle=1ms)",
          "ddp(wire=fp16)", "ddp+topk", "ddp(bucket=64KiB)+powersgd(rank=2)",
          "ddp(bucket=64KiB)+codec(ratio=8, encode=1GB/s, decode=1GB/s, on=compute)"})
      for (const PlanOptions& options : {PlanOptions{}, training()}) {
        const doc::Plan plan = planned(exchange + "+kfac(" + sharing + ")", 4, options);
        for (const doc::TaskGraph& g : plan.variants) {
          SCOPED_TRACE(plan.strategy + ", " + g.name);
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
            const std::int32_t layer = plan.blocks[to_index(g.tasks[p].first / 2)].layer;
            for (std::size_t i = 0; i < g.tasks.size(); ++i) {
              const doc::Task& t = g.tasks[i];
              const bool inverts = t.kind == TaskKind::inverse && t.first >= g.tasks[p].first &&
                                   t.last <= g.tasks[p].last;
              // Whole gradients: every bucket that holds one of its layer.
              const bool sends =
                  doc::is_communication(t.kind) && t.subject == doc::Subject::payloads &&
                  std::ranges::any_of(gradients_of(plan, g, t), [&](std::int32_t position) {
                    return plan.gradient_layer[to_index(position)] == layer;
                  });
              EXPECT_TRUE(!(inverts || sends) || comes_before(i, p)) << "task " << i;
            }
          }
          for (std::size_t i = 0; i < g.tasks.size(); ++i) {
            const doc::Task& t = g.tasks[i];
            const bool brings =
                plan.operation_name(t) == "unpack-directions" ||
                (t.kind == TaskKind::broadcast && payload_of(g, t).content == Content::directions);
            EXPECT_TRUE(!brings || comes_before(i, clip.front())) << "task " << i;
          }
        }
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
    for (const std::int32_t f : members_of(g, p)) sides.insert(doc::side_of_factor(f));
    order += sides.size() == 2 ? 'F' : *sides.begin() == FactorSide::a ? 'A' : 'B';
  }
  EXPECT_EQ(plan.ranks > 1 || order.find('I') == std::string::npos, true);
  return order;
}

TEST(KfacPlans, FactorsTravelBetweenTheGradientsAsTheyGetReady) {
  for (const auto& [strategy, order, part] :
       // One factor a message: all A under forward, each G behind its own layer's bucket.
       {std::tuple{"kfac(spd, fusion=none, placement=lpt)", "A{6}(G*B){6}G*I{12}", "BG"},
        {"kfac(spd, fusion=bulk, placement=lpt)", "A[^AB]*B[^AB]*", ""},
        // Behind the gradients, in one message.
        {"kfac(mpd)", "G+FI{12}", ""},
        {"kfac(dp)", "[GD]+", ""},
        {"kfac(mem)", "G+FD{6}", ""}}) {
    const doc::Plan plan = planned(std::string("ddp(first=1KiB, bucket=64KiB)+") + strategy, 2);
    EXPECT_THAT(network(plan, plan.variants.back()), AllOf(MatchesRegex(order), HasSubstr(part)))
        << strategy;
  }
}

double step_s(const std::string& strategy, int ranks, const doc::Cluster& c = cluster()) {
  return step_s(planned(strategy, ranks, {}, workload(), c), c);
}

/// Collectives of a rank in the order of its network, of those that another one has, too.
std::vector<std::uint32_t> shared_with(int other, const doc::Plan& plan, const doc::TaskGraph& g,
                                       int rank) {
  auto sent = doc::VariantIndex(plan, g, rank).lanes[to_index(doc::Resource::network)];
  std::erase_if(sent, [&](std::uint32_t t) { return !plan.group_of(g.tasks[t]).holds(other); });
  return sent;
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
            for (int b = a + 1; b < 4; ++b)
              EXPECT_EQ(shared_with(b, plan, g, a), shared_with(a, plan, g, b))
                  << strategy << ", " << g.name;
          const Order comes_before(g);
          for (std::uint32_t i = 0; i < g.tasks.size(); ++i) {
            const doc::Task& sum = g.tasks[i];
            if (sum.kind != TaskKind::all_reduce || sum.subject != doc::Subject::payloads) continue;
            const doc::Payload& p = payload_of(g, sum);
            if (p.content != Content::factors) continue;
            const auto members = members_of(g, p);
            for (std::uint32_t k = 0; k < g.tasks.size(); ++k) {
              const bool is_member = g.tasks[k].kind == TaskKind::factor &&
                                     std::ranges::count(members, g.tasks[k].first) > 0;
              EXPECT_TRUE(!is_member || comes_before(k, i)) << strategy << ", " << g.name;
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
      for (const std::int32_t f : members_of(g, payload_of(g, t))) lane.all.insert(f);
    if (t.kind != TaskKind::inverse) continue;
    lane.averages.push_back(lane.all);
    lane.inverses.push_back(t.first);
  }
  return lane;
}

TEST(KfacPlans, AnInverseBeginsOnceTheAveragesOfItsLayerAreThere) {
  for (const std::string strategy :
       {"kfac(d, fusion=none)", "kfac(mpd, fusion=none)", "kfac(spd, fusion=none)",
        "kfac(spd, fusion=none, placement=lpt)", "kfac(hybrid, fusion=none)",
        "kfac(mem, fusion=none)", "kfac(spd, fusion=none, placement=lbp2021, theta=300)"})
    for (const PlanOptions& options : {PlanOptions{}, training()}) {
      doc::Cluster slow = cluster();
      slow.network.bandwidth_bytes_per_s = 1e8;
      const doc::Plan plan = planned(strategy, 4, options, workload(), slow);
      const Lane lane = lane_of(plan, plan.variants.back());
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
  for_every_sharing({1, 2, 4}, [&](const Shared& alone) {
    const doc::Plan plan =
        planned(alone.strategy(), alone.ranks, alone.options, workload(), with_calls(cluster()));
    const doc::TaskGraph& g = plan.variants.back();
    const auto sent = sent_factors(g);
    for (int rank = 0; rank < alone.ranks; ++rank) {
      EXPECT_EQ(counts(plan, g, TaskKind::inverse, "inverse", rank),
                counts(alone.plan, alone.graph(), TaskKind::inverse, "inverse", rank));
      for (const std::vector<std::size_t>& call : calls_of(plan, g, rank)) {
        const auto block_of = [&](const doc::Task& t) {
          return plan.blocks[to_index(t.first / 2)];
        };
        const auto side_of = [](const doc::Task& t) { return doc::side_of_factor(t.first); };
        const doc::Task& last = g.tasks[call.back()];
        double seconds = 0;
        for (const std::size_t i : call) {
          const doc::Task& t = g.tasks[i];
          EXPECT_EQ(block_of(t).dimension(side_of(t)), block_of(last).dimension(side_of(last)));
          seconds += doc::inverse_s(block_of(t), side_of(t), cluster().second_order);
          EXPECT_TRUE(call.size() == 1 || !sent.contains(t.first));
          EXPECT_TRUE(i == call.back() || t.seconds == 0);
        }
        EXPECT_LE(call.size(), 4u);
        EXPECT_DOUBLE_EQ(last.seconds, call.size() > 1 ? seconds / 4 : seconds);
        shared += call.size() > 1;
      }
    }
    // Whoever waits for an inverse waits for its call.
    for (std::size_t i = 0; i < g.tasks.size(); ++i)
      for (const std::uint32_t p : g.predecessors(i))
        EXPECT_TRUE(!doc::is_inverted_with_next(plan, g.tasks[p]) ||
                    g.tasks[i].kind == TaskKind::inverse);
  });
  EXPECT_GT(shared, 10);
}

TEST(KfacPlans, InversesShareNoCallThatWasNotMeasuredToBeSooner) {
  const auto with_next = [](const std::string& strategy, const doc::Cluster& c,
                            const doc::Workload& w = workload()) {
    const doc::Plan plan = planned(strategy, 2, {}, w, c);
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
  const doc::Plan plan = planned("kfac(d, fusion=none)", 4, {}, workload(), slow);
  const Lane lane = lane_of(plan, plan.variants.back());
  ASSERT_EQ(lane.inverses.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_TRUE(lane.averages[i].contains(lane.inverses[i])) << lane.inverses[i];
}

TEST(KfacPlans, BroadcastsOfOneRootTravelTogetherWhereThatIsSooner) {
  const auto messages = [](const std::string& strategy, double latency_s) {
    const doc::Plan plan = planned(strategy, 4, {}, workload(), cluster_with(latency_s));
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

void expect_no_slower(const std::string& ours, const std::string& theirs, int ranks,
                      const doc::Cluster& c) {
  EXPECT_LE(step_s(ours, ranks, c), step_s(theirs, ranks, c) * (1 + 1e-9))
      << ours << ", not " << theirs << " on " << ranks << ": " << c.network.latency_s << " s, "
      << c.network.bandwidth_bytes_per_s << " B/s, a tensor " << c.tensor_s << " s";
}

TEST(KfacPlans, FusedBroadcastsAreNeverSlower) {
  for (const int ranks : {2, 4, 8})
    for (const double latency_s : {0.0, 1e-5, 1e-3, 1e-2})
      for (const std::string sharing : {"mpd", "mem", "dp", "hybrid", "spd"})
        expect_no_slower("kfac(" + sharing + ", broadcasts=fused)",
                         "kfac(" + sharing + ", broadcasts=single)", ranks,
                         cluster_with(latency_s));
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
  for_every_sharing({4}, [](const Shared& x) {
    const doc::Plan plan =
        planned(fmt::format("kfac({}, factors=2, inverses=4)", x.sharing), 4, x.options);
    for (const doc::TaskGraph& g : plan.variants) {
      std::set<TaskKind> kinds;
      for (const doc::Task& t : g.tasks) kinds.insert(t.kind);
      const bool stale = g.name.find(".stale") != std::string::npos,
                 fresh = !stale && g.name.find(".factors") == std::string::npos;
      EXPECT_EQ(kinds.contains(TaskKind::factor), !stale) << g.name;
      EXPECT_EQ(kinds.contains(TaskKind::inverse), fresh) << g.name;
      EXPECT_TRUE(kinds.contains(TaskKind::precondition)) << g.name;
      EXPECT_EQ(network(plan, g).find('D') != std::string::npos, x.has_layer_owners()) << g.name;
    }
  });
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
          if (e.to == i && &plan.variants[to_index(e.variant)] == &g)
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
        doc::Cluster c = cluster_with(cluster().network.latency_s, bandwidth);
        c.tensor_s = tensor_s;
        if (slowdown > 1) c.contention = doc::Contention{1, slowdown};
        for (const char* other :
             {"kfac(spd, fusion=greedy)", "kfac(spd, fusion=none)", "kfac(spd, fusion=bulk)",
              "kfac(spd, placement=lbp2021, theta=300)", "kfac(spd, placement=lpt)",
              "kfac(spd, placement=round-robin)", "kfac(d)", "kfac(mpd)"})
          expect_no_slower("kfac(spd)", other, ranks, c);
      }
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
            const std::string kfac = "+kfac(spd, " + options + ")";
            expect_no_slower(exchange.name + kfac, "bulk" + kfac, ranks,
                             cluster_with(latency_s, bandwidth));
          }
  }
}

TEST(KfacPlans, SendGradientsAtOnceInAllStepsOrInNone) {
  const auto sent = [](const std::string& strategy, double latency_s) {
    std::vector<std::vector<std::vector<std::int32_t>>> by_variant;
    const doc::Plan plan =
        support::planned(strategy, workload(), cluster_with(latency_s), 4, training());
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

TEST(KfacPlans, IntervalsAverageOverTheCycle) {
  // Steps of the cycle in which nothing is brought up to date.
  doc::Plan stale = planned("kfac(d, factors=4)", 4);
  stale.warm_up.clear();
  stale.cycle = {stale.variant_index("steady.stale")};
  const double each_s = step_s("kfac(d)", 4), never_s = step_s(stale, cluster());
  EXPECT_LT(never_s, each_s);
  EXPECT_NEAR(step_s("kfac(d, factors=4)", 4), (each_s + 3 * never_s) / 4, 1e-12);
}

TEST(KfacPlans, WithoutItsPartsItIsTheExchangeAlone) {
  for (const std::string exchange : {"ddp(first=1KiB, bucket=64KiB)", "bulk"})
    for_every_sharing({4}, [&](const Shared& x) {
      const doc::Plan plan = planned(exchange + "+" + x.strategy(), 4, x.options);
      const auto step_with = [&](doc::StepPart last) {
        return step_s(up_to(plan, last), cluster());
      };
      EXPECT_NEAR(step_with(doc::StepPart::gradient_communication),
                  step_s(planned(exchange, 4, x.options), cluster()), 1e-12);
      EXPECT_GT(step_with(doc::StepPart::factor_computation),
                step_with(doc::StepPart::gradient_communication));
      EXPECT_GT(step_with(doc::StepPart::inverse_computation),
                step_with(doc::StepPart::factor_communication));
      EXPECT_EQ(step_with(doc::StepPart::inverse_communication), step_s(plan, cluster()));
    });
}

/// Whole layers, by what an owner does for them in a step: no assignment is much better.
TEST(KfacPlans, OwnersOfDpLayersHaveAboutAsMuchToDo) {
  for (const int ranks : {2, 3, 4}) {
    const doc::Plan plan = planned("kfac(dp)", ranks);
    std::vector<double> layer_s(plan.blocks.size()), load_s(to_index(ranks));
    for (const doc::Task& t : plan.variants.back().tasks) {
      const bool owned = t.kind == TaskKind::factor || t.kind == TaskKind::inverse ||
                         plan.operation_name(t) == "precondition";
      if (!owned) continue;
      layer_s[to_index(doc::block_of_factor(t.first))] += t.seconds;
      const auto& part = plan.group_of(t).parts.at(0);
      ASSERT_EQ(part.size(), 1U);
      load_s[to_index(part.front())] += t.seconds;
    }
    double best_s = std::accumulate(layer_s.begin(), layer_s.end(), 0.0);
    const auto choices = static_cast<int>(std::pow(ranks, layer_s.size()));
    for (int choice = 0; choice < choices; ++choice) {
      std::vector<double> sums(to_index(ranks));
      int digits = choice;
      for (const double s : layer_s) sums[to_index(digits % ranks)] += s, digits /= ranks;
      best_s = std::min(best_s, *std::max_element(sums.begin(), sums.end()));
    }
    EXPECT_LE(*std::max_element(load_s.begin(), load_s.end()),
              best_s * (4.0 / 3 - 1.0 / (3 * ranks)) * (1 + 1e-12))
        << ranks;
  }
}

// ---- agreement ----

TEST(KfacPlans, AreTheSameOnEveryRankAndInTheirJson) {
  for_every_sharing({4}, [](const Shared& x) {
    const doc::Plan again = planned(x.strategy(), 4, x.options);
    EXPECT_EQ(x.plan.hash(), again.hash());
    EXPECT_EQ(doc::to_json(x.plan), doc::to_json(again));
    EXPECT_EQ(doc::plan_from_json(doc::to_json(x.plan), "p.json").hash(), x.plan.hash());
  });
}

TEST(KfacPlans, DiagonalsAndUnitsAreAveragedAndNotInverted) {
  doc::Workload w = workload();
  w.blocks[1].kind = doc::BlockKind::embedding;
  w.blocks[3] = {.layer = 3, .kind = doc::BlockKind::unit_wise, .g = 400};
  for (const std::string options : {"norms=on, embeddings=on", "norms=off"}) {
    const doc::Plan plan = planned("kfac(spd, " + options + ")", 2, {}, w);
    EXPECT_EQ(plan.blocks.size(), options == "norms=off" ? 4u : 6u);
    std::set<std::int32_t> inverted;
    for (const doc::Task& t : plan.variants.back().tasks)
      if (t.kind == TaskKind::inverse) inverted.insert(t.first);
    EXPECT_EQ(inverted.size(), options == "norms=off" ? 8u : 9u);  // 4 A and 5 G
    EXPECT_EQ(sent(plan, plan.variants.back(), 0)[Content::factors],
              of_blocks(plan)[Content::factors]);
  }
}

}  // namespace
}  // namespace linerate::plan
