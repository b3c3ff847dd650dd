// A job and a network whose times are known, for tests of ask() and advise().
#pragma once

#include <cstdint>
#include <string>

#include "linerate/doc/cluster.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::whatif {

inline constexpr double kGbit = 1.25e8;  // bytes/s

/// Forty gradients of 2.5 MB, ready every millisecond: 100 MB in 40 ms of backward, 20 ms of
/// forward. On 4 ranks a ring moves 150 MB per direction: 1.2 s at 1 Gbit/s, 12 ms at 100 Gbit/s.
inline doc::Workload workload() {
  doc::Workload w;
  w.name = "forty layers";
  for (int i = 0; i < 40; ++i) {
    doc::Gradient g;
    g.name = "g" + std::to_string(i);
    g.elements = 625'000;
    g.registration = 39 - i;
    g.ready_s = (i + 1) * 1e-3;
    w.gradients.push_back(g);
  }
  w.backward_s = 0.040, w.forward_s = 0.020, w.step_s = 0.060;
  return w;
}

inline doc::Cluster cluster(double gbit) {
  doc::Cluster c;
  c.name = "test";
  c.ranks = 4;
  c.network = {gbit * kGbit, 10e-6};
  return c;
}

/// As cluster(), measured: one all-reduce curve of alpha 30 us with an error of +-`share`.
inline doc::Cluster measured(double gbit, double share) {
  doc::Cluster c = cluster(gbit);
  doc::CollectiveCost cost;
  cost.ranks = 4;
  const double beta = 1.5 / (gbit * kGbit);
  cost.segments = {{1, std::int64_t{1} << 40, 30e-6, beta, 1 / (1 + share), 1 + share}};
  c.collectives = {cost};
  return c;
}

}  // namespace linerate::whatif
