// Tables of collectives as a calibration leaves them.
#pragma once

#include <cstdint>
#include <utility>

#include "linerate/doc/cluster.hpp"

namespace linerate::bench {

/// Gives a Cluster of some ranks tables of eight pieces with a measured error of 10 %. `beta`:
/// seconds a byte of the shortest all-reduces.
inline void add_fitted_tables(doc::Cluster& cluster, double beta_s_per_byte) {
  for (const auto& [collective, share] :
       {std::pair{Collective::all_reduce, 1.0}, std::pair{Collective::reduce_scatter, 0.5},
        std::pair{Collective::all_gather, 0.5}}) {
    doc::CollectiveCost cost;
    cost.collective = collective;
    cost.ranks = cluster.ranks;
    double alpha = 30e-6, beta = beta_s_per_byte;
    std::int64_t from = 1;
    for (int k = 0; k < 8; ++k) {
      const std::int64_t to = std::int64_t{1} << (12 + 3 * k);
      cost.segments.push_back({from, to, alpha * share, beta * share, 0.9, 1.1});
      const double next = beta * (k % 2 ? 0.8 : 0.95);
      alpha += (beta - next) * static_cast<double>(to);
      beta = next, from = to;
    }
    cluster.collectives.push_back(cost);
  }
}

}  // namespace linerate::bench
