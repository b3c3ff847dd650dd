// bench/inverses: K-FAC's inverses of one size on a device: one after the other, on several
// streams, and together in one batched solver. Every inverse is checked before anything is
// timed.
//
//   inverses [DEVICE [ROWS...]]     "cpu", "cuda", "cuda:1"; 64 128 ... unless rows are given
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/exec/streams/make_stream_program.hpp"
#include "linerate/exec/streams/stream_runner.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"
#include "linerate/torch_streams/make_tensor_device.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr int kInverses = 8;
constexpr double kDamping = 0.1;

/// Factors as K-FAC has them: X Xᵀ / rows, [kInverses, d, d].
at::Tensor factors_of(std::int64_t d, c10::Device device) {
  const at::Tensor x = at::randn({kInverses, d, d}, at::TensorOptions(at::kFloat).device(device));
  return at::matmul(x, x.mT()).div(static_cast<double>(d));
}

/// One rank's inverses in one run of its compute lane.
std::shared_ptr<const doc::Plan> plan_of_inverses() {
  auto plan = std::make_shared<doc::Plan>();
  plan->strategy = "bench";
  plan->ranks = 1;
  plan->operations = {{"inverse", {}}};
  doc::TaskGraph& graph = plan->variants.emplace_back();
  graph.name = "steady";
  for (int i = 0; i < kInverses; ++i)
    graph.add({.kind = doc::TaskKind::inverse,
               .resource = doc::Resource::compute,
               .subject = doc::Subject::inverses,
               .operation = 0,
               .first = i,
               .last = i});
  return plan;
}

/// As a training step enqueues them, so many at once.
class Streams {
 public:
  Streams(const at::Tensor& factors, const at::Tensor& dampings, int at_once)
      : program_(exec::make_stream_program(plan_of_inverses(), 0, {.at_once = at_once})),
        device_(torch_streams::make_tensor_device(
            factors.device(), program_->lanes.count(),
            [=, this](const exec::StreamWork& work) {
              const std::int64_t i = work.task.first;
              found[to_index(i)] =
                  try_damped_inverses(factors.narrow(0, i, 1), dampings.narrow(0, i, 1)).matrices;
            })),
        runner_(program_, *device_) {}

  void run() {
    runner_.fork();
    runner_.run_step();
    runner_.settle_lane();
  }

  std::vector<at::Tensor> found = std::vector<at::Tensor>(kInverses);

 private:
  std::shared_ptr<const exec::StreamProgram> program_;
  std::unique_ptr<torch_streams::TensorDevice> device_;
  exec::StreamRunner runner_;
};

/// Returns when all is over that is in the stream that computes.
void wait_for(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  c10::Event over(tensor.device().type());
  over.record(guard.getStream(tensor.device()));
  over.synchronize();
}

/// The median of some runs, from an empty device to an empty one.
double seconds_of(const at::Tensor& on, const std::function<void()>& work) {
  std::vector<double> runs;
  for (int run = 0; run < 11; ++run) {
    wait_for(on);
    const std::int64_t start = steady_ns();
    work();
    wait_for(on);
    if (run >= 2) runs.push_back(static_cast<double>(steady_ns() - start) * 1e-9);
  }
  std::nth_element(runs.begin(), runs.begin() + std::ssize(runs) / 2, runs.end());
  return runs[runs.size() / 2];
}

/// inverse (factor + damping I) = I. Eigenvalues of factors are below 4 (Marchenko & Pastur), so
/// that the condition is about 40, and an element of the product rounds d times.
void check(const at::Tensor& factors, const at::Tensor& inverses, const char* what) {
  const std::int64_t d = factors.size(-1);
  const at::Tensor identity = at::eye(d, factors.options());
  const at::Tensor product = at::matmul(inverses, factors + identity * kDamping);
  const auto worst = (product - identity).abs().max().item<double>();
  const double bound = 40 * 6e-8 * static_cast<double>(d);
  if (worst <= bound) return;
  fmt::print(stderr, "inverses: {} rows, {}: off the identity by {}, expected {}\n", d, what, worst,
             bound);
  std::exit(70);
}

void bench(std::int64_t d, c10::Device device) {
  const at::Tensor factors = factors_of(d, device);
  const at::Tensor dampings = at::full({kInverses}, kDamping, factors.options());
  Streams alone(factors, dampings, 1), two(factors, dampings, 2), four(factors, dampings, 4);
  at::Tensor together;
  const auto batched = [&] { together = try_damped_inverses(factors, dampings).matrices; };
  for (Streams* streams : {&alone, &two, &four}) {
    streams->run();
    for (int i = 0; i < kInverses; ++i)
      check(factors[i], streams->found[to_index(i)][0], "in streams");
  }
  batched();
  check(factors, together, "together");
  const double one_s = seconds_of(factors, [&] { alone.run(); });
  const double two_s = seconds_of(factors, [&] { two.run(); });
  const double four_s = seconds_of(factors, [&] { four.run(); });
  const double batch_s = seconds_of(factors, batched);
  fmt::print("{:>6} {:>12.3f} {:>10.2f} {:>10.2f} {:>10.2f}\n", d, one_s / kInverses * 1e3,
             two_s / one_s, four_s / one_s, batch_s / one_s);
}

void bench_all(int argc, char** argv) {
  const c10::NoGradGuard no_grad;
  const c10::Device device(argc > 1 ? argv[1] : "cpu");
  if (device.is_cpu()) at::set_num_threads(1);  // a trial, where all is done as it is enqueued
  static_cast<void>(torch_streams::make_tensor_device(device, 1, {}));  // says if it is not there
  std::vector<std::int64_t> rows;
  for (int i = 2; i < argc; ++i) rows.push_back(std::atoll(argv[i]));
  if (rows.empty()) rows = {64, 128, 256, 512};
  if (argc <= 2 && !device.is_cpu()) rows.insert(rows.end(), {1024, 2048, 4608});
  fmt::print("{} inverses of f32 on {}; ratios are of all of them to one after the other\n",
             kInverses, device.str());
  fmt::print("{:>6} {:>12} {:>10} {:>10} {:>10}\n", "rows", "ms of one", "2 at once", "4 at once",
             "batched");
  for (const std::int64_t d : rows) bench(d, device);
}

}  // namespace
}  // namespace linerate::torch_adapter

int main(int argc, char** argv) {
  try {
    linerate::torch_adapter::bench_all(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
