// What holds between the prices of one Cluster, whatever was measured: costs agree with each other.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/cost/cost_model.hpp"

namespace linerate::cost {

class Agreement {
 public:
  /// Prices that were looked at.
  std::int64_t cases = 0;
  /// What does not hold, the first of each kind and Cluster.
  std::vector<std::string> broken;

  /// All-reduces lie between their halves and both in turn, and so do the ends of their intervals;
  /// costs grow with bytes and with ranks;
  /// no bytes cost more than nothing; intervals hold their prices.
  void check(const CostModel& model, const std::string& cluster, const std::vector<double>& sizes,
             const std::vector<int>& ranks) {
    cluster_ = cluster;
    const CostCurve *whole = nullptr, *scatter = nullptr, *gather = nullptr;
    std::map<Collective, std::vector<double>> fewer;  // seconds by size, on fewer ranks
    for (const int n : ranks) {
      std::map<Collective, CostCurve> curves;
      for (const std::string_view name : kCollectiveNames) {
        const Collective what = parse_collective(name);
        if (!model.can_price(what, n)) continue;
        const CostCurve& curve = curves.emplace(what, cost_curve(model, what, n)).first->second;
        check_one(curve, what, n, what == Collective::barrier ? std::vector{0.0} : sizes,
                  fewer[what]);
      }
      if (!curves.contains(Collective::all_reduce) || !curves.contains(Collective::all_gather))
        continue;
      whole = &curves.at(Collective::all_reduce);
      scatter = &curves.at(Collective::reduce_scatter);
      gather = &curves.at(Collective::all_gather);
      for (const double s : sizes) {
        const Estimate all = whole->estimate(s), a = scatter->estimate(s), b = gather->estimate(s);
        const bool is_made = whole->is_made_of_halves(s);
        check_halves(all.seconds, a.seconds, b.seconds, is_made, "", s, n);
        check_halves(all.low, a.low, b.low, is_made, ", low end", s, n);
        check_halves(all.high, a.high, b.high, is_made, ", high end", s, n);
      }
    }
  }

 private:
  static constexpr double kMore = 1 + 1e-9;  // rounding

  void check_one(const CostCurve& curve, Collective what, int n, const std::vector<double>& sizes,
                 std::vector<double>& fewer) {
    double before = 0;
    fewer.resize(sizes.size(), 0.0);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const double s = sizes[i];
      const Estimate e = curve.estimate(s);
      cases += 1;
      hold(std::isfinite(e.seconds) && e.seconds > 0, "free", what, s, n, e.seconds, 0);
      hold(std::abs(e.seconds - curve.seconds(s)) <= 1e-9 * e.seconds, "not its seconds", what, s,
           n, e.seconds, curve.seconds(s));
      hold(e.low <= e.seconds * kMore && e.seconds <= e.high * kMore, "outside its interval", what,
           s, n, e.seconds, e.low);
      hold(e.seconds * kMore >= before, "less than fewer bytes", what, s, n, e.seconds, before);
      hold(e.seconds * kMore >= fewer[i], "less than fewer ranks", what, s, n, e.seconds, fewer[i]);
      before = e.seconds;
      fewer[i] = e.seconds;
    }
  }

  void check_halves(double all, double a, double b, bool is_made, const char* end, double s,
                    int n) {
    cases += 1;
    hold(all <= (a + b) * kMore, fmt::format("more than both halves{}", end),
         Collective::all_reduce, s, n, all, a + b);
    if (is_made)
      hold(all * kMore >= std::max(a, b), fmt::format("less than a half{}", end),
           Collective::all_reduce, s, n, all, std::max(a, b));
  }

  void hold(bool holds, const std::string& kind, Collective what, double s, int n, double found,
            double bound) {
    if (holds) return;
    const std::string key = fmt::format("{}: {}", cluster_, kind);
    for (const std::string& known : broken)
      if (known.starts_with(key)) return;
    broken.push_back(fmt::format("{}, {} of {:.0f} B on {} ranks: {:.6g} s against {:.6g}", key,
                                 name_of(what), s, n, found, bound));
  }

  std::string cluster_;
};

/// Nothing, a byte, on and next to the measured ones, between them and far from them.
inline std::vector<double> sizes_around(const doc::Cluster& cluster) {
  std::vector<double> sizes{0, 1, 2, 3, 1e12};
  for (int k = 4; k < 40; k += 3) sizes.push_back(std::exp2(k) + 5);
  for (const doc::CollectiveCost& cost : cluster.collectives) {
    const std::size_t step = 1 + cost.samples.size() / 12;
    for (std::size_t i = 0; i < cost.samples.size(); i += step) {
      const double s = cost.samples[i].bytes;
      for (const double near : {s / 8 - 1, s - 1, s, s + 1, 1.3 * s, 8 * s + 1})
        sizes.push_back(std::max(0.0, std::round(near)));
    }
    for (const doc::RegimeSwitch& w : cost.switches)
      for (const std::int64_t bytes : {w.after_bytes, w.before_bytes})
        sizes.insert(sizes.end(), {static_cast<double>(bytes), static_cast<double>(bytes) + 1});
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

inline const std::vector<int> kRanksAround{2,  3,  4,  5,  6,   7,   8,   9,    12,   16,   17,
                                           31, 32, 33, 64, 100, 128, 257, 1000, 1024, 4096, 10000};

}  // namespace linerate::cost
