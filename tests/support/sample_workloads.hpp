// Small Workloads for tests of planners and simulators.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::support {

/// torchvision's ResNet-50: 161 parameter tensors, 25,557,032 elements, in registration order.
inline std::vector<std::int64_t> resnet50_parameters() {
  std::vector<std::int64_t> sizes;
  const auto conv = [&](std::int64_t out, std::int64_t in, std::int64_t kernel) {
    sizes.push_back(out * in * kernel * kernel);
    sizes.insert(sizes.end(), {out, out});  // batch norm: weight and bias
  };
  conv(64, 3, 7);
  std::int64_t in = 64;
  const std::int64_t widths[] = {64, 128, 256, 512};
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage)
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::int64_t w = widths[stage];
      conv(w, in, 1);
      conv(w, w, 3);
      conv(4 * w, w, 1);
      if (block == 0) conv(4 * w, in, 1);
      in = 4 * w;
    }
  sizes.push_back(1000 * 2048);
  sizes.push_back(1000);
  return sizes;
}

/// Gradients of `bytes` bytes (a multiple of 4 each) ready at `ready_s`.
inline doc::Workload workload_at(const std::vector<double>& ready_s,
                                 const std::vector<std::int64_t>& bytes) {
  doc::Workload w;
  w.name = "sample";
  for (std::size_t i = 0; i < ready_s.size(); ++i) {
    doc::Gradient g;
    g.registration = static_cast<int>(ready_s.size() - 1 - i);
    g.name = "p" + std::to_string(g.registration);
    g.elements = bytes[i] / 4;
    g.ready_s = ready_s[i];
    w.gradients.push_back(g);
  }
  w.backward_s = ready_s.empty() ? 0 : ready_s.back();
  return w;
}

/// Gradients get ready in reverse registration order, `gap_s` apart.
inline doc::Workload workload_of(const std::vector<std::int64_t>& registration_elements,
                                 double gap_s = 1e-3) {
  std::vector<double> ready_s;
  std::vector<std::int64_t> bytes(registration_elements.rbegin(), registration_elements.rend());
  for (std::int64_t& size : bytes) {
    size *= 4;
    ready_s.push_back(gap_s * static_cast<double>(ready_s.size() + 1));
  }
  return workload_at(ready_s, bytes);
}

/// Every gradient is the weight of a layer of its own, with the factors of a square matrix; layers
/// that are there keep their times.
inline doc::Workload with_blocks(doc::Workload w) {
  const int count = static_cast<int>(w.gradients.size());
  if (w.layers.empty()) {
    for (int l = 0; l < count; ++l) {
      w.layers.push_back({"layer" + std::to_string(l), "linear", {}, {}, 0});
      w.gradients[static_cast<std::size_t>(count - 1 - l)].layer = l;
    }
  }
  for (int p = count; p-- > 0;) {
    const doc::Gradient& g = w.gradients[static_cast<std::size_t>(p)];
    const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(g.elements)));
    w.blocks.push_back({.layer = g.layer, .a = side, .g = side, .rows_a = 32, .rows_g = 32});
  }
  return w;
}

/// What second-order steps cost in tests: every part of them takes time.
inline doc::SecondOrderCost second_order_cost() {
  return {.inverse_fixed_s = 1e-4,
          .inverse_s_per_cube = 1e-10,
          .factor_fixed_s = 5e-5,
          .factor_flops_per_s = 1e10,
          .precondition_fixed_s = 1e-5,
          .precondition_flops_per_s = 1e10};
}

/// Two ranks make the ring's cost alpha' + beta' S with alpha' = 2 alpha and beta' = 1 / bandwidth.
inline doc::Cluster two_rank_cluster(double alpha_s, double beta_s_per_byte) {
  doc::Cluster c;
  c.name = "two ranks";
  c.ranks = 2;
  c.network = {1 / beta_s_per_byte, alpha_s / 2};
  return c;
}

/// Seconds that a regular step of `plan` computes.
inline double compute_s(const doc::Plan& plan) {
  double sum = 0;
  for (const doc::Task& t : plan.variants.back().tasks)
    if (t.resource == doc::Resource::compute) sum += t.seconds;
  return sum;
}

}  // namespace linerate::support
