// How fast advise() answers for many gradients, and the exact search for buckets behind it. Checks
// its results first; see bench/README.md.
//   build/release/bench/advise [--json]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "figures.hpp"
#include "fitted_tables.hpp"
#include "linerate/advise/advise.hpp"
#include "linerate/advise/ranking.hpp"
#include "linerate/core/index.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/plan/exchange/fusion.hpp"

namespace {

using namespace linerate;
using bench::report, bench::seconds_of;

constexpr bench::Require require{"advise"};

/// 100 MB in so many gradients of uneven size, 40 ms of backward and 20 of forward.
doc::Workload workload(int gradients) {
  doc::Workload w;
  w.name = fmt::format("{} gradients", gradients);
  for (int i = 0; i < gradients; ++i) {
    doc::Gradient g;
    g.name = fmt::format("g{}", i);
    g.elements = 25'000'000 / gradients * (1 + i * 7919 % 5) / 3;
    g.registration = gradients - 1 - i;
    g.ready_s = 0.040 * (i + 1) / gradients;
    w.gradients.push_back(g);
  }
  w.backward_s = 0.040, w.forward_s = 0.020, w.step_s = 0.060;
  return w;
}

/// Four ranks.
doc::Cluster fitted(bool contended) {
  doc::Cluster c;
  c.name = "fitted";
  c.ranks = 4;
  c.network = {1.25e9, 10e-6};
  bench::add_fitted_tables(c, 2e-9);
  if (contended) c.contention = doc::Contention{1.1, 1.3};
  return c;
}

/// In ready order.
struct Gradients {
  std::vector<double> ready_s, bytes;

  explicit Gradients(const doc::Workload& w) {
    for (const doc::Gradient& g : w.gradients) {
      ready_s.push_back(g.ready_s);
      bytes.push_back(static_cast<double>(g.bytes()));
    }
  }
  plan::FusionProblem problem() const { return {ready_s, bytes, {}}; }
};

/// Every cut of every prefix.
double least_finish_s(const Gradients& problem, const cost::CostCurve& curve) {
  const std::size_t n = problem.bytes.size();
  std::vector<double> prefix(n + 1), finish(n + 1, INFINITY);
  for (std::size_t i = 0; i < n; ++i) prefix[i + 1] = prefix[i] + problem.bytes[i];
  finish[0] = 0;
  for (std::size_t j = 1; j <= n; ++j)
    for (std::size_t i = 0; i < j; ++i)
      finish[j] = std::min(finish[j], std::max(finish[i], problem.ready_s[j - 1]) +
                                          curve.seconds(prefix[j] - prefix[i]));
  return finish[n];
}

double finish_s(const Gradients& problem, const std::vector<std::int32_t>& ends,
                const cost::CostCurve& curve) {
  double finish = 0;
  std::size_t begin = 0;
  for (const std::int32_t cut : ends) {
    const auto end = to_index(cut);
    double size = 0;
    for (std::size_t l = begin; l < end; ++l) size += problem.bytes[l];
    finish = std::max(finish, problem.ready_s[end - 1]) + curve.seconds(size);
    begin = end;
  }
  return finish;
}

void check_search(const cost::CostCurve& curve) {
  const Gradients gradients(workload(2000));
  const double least = least_finish_s(gradients, curve);
  const double found = finish_s(gradients, plan::optimal_fusion(gradients.problem(), curve), curve);
  require(std::abs(found / least - 1) < 1e-9, fmt::format("{} instead of {}", found, least));
  fmt::print("checked: the search for buckets against every cut, 2000 gradients\n");
}

void bench_search(const cost::CostCurve& curve) {
  for (const int gradients : {10'000, 100'000}) {
    const Gradients given(workload(gradients));
    const double seconds = seconds_of([&] { plan::optimal_fusion(given.problem(), curve); });
    report({fmt::format("optimal buckets of {} gradients, fitted", gradients), seconds, 5, "s"});
  }
}

/// Its step against the same strategy, judged alone.
void check_advice(const doc::Advice& advice, const doc::Workload& w, const doc::Cluster& c) {
  advise::Evaluator evaluator(w, c, c.ranks, {});
  for (const char* strategy : {"ddp", "optimal", "dear"}) {
    const auto found =
        std::find_if(advice.candidates.begin(), advice.candidates.end(),
                     [&](const doc::Candidate& x) { return x.strategy == strategy; });
    require(found != advice.candidates.end(), strategy);
    require(found->step_s->value ==
                evaluator.run(doc::parse_strategy(strategy), std::nullopt).step_s.value,
            fmt::format("{} judged side by side differs", strategy));
  }
}

void bench_advice() {
  for (const bool contended : {false, true}) {
    const doc::Workload w = workload(10'000);
    const doc::Cluster c = fitted(contended);
    doc::Advice advice;
    const double seconds = seconds_of([&] { advice = advise::advise(w, c, {}); });
    check_advice(advice, w, c);
    report({fmt::format("advice on 10000 gradients, fitted{}", contended ? ", contended" : ""),
            seconds, 3, "s"});
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::exit_status([&] {
    const cost::CostModel model(fitted(false));
    const cost::CostCurve curve = cost::cost_curve(model, Collective::all_reduce, 4);
    check_search(curve);
    bench_search(curve);
    bench_advice();
    bench::print_json_if_asked(argc, argv);
  });
}
