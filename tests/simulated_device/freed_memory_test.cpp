// Memory that several streams use, freed and given away at once, and updates that another stream
// asks for: every order is known to the streams, and weights are the CPU's.
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <optional>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "simulated_device/simulated_device.hpp"
#include "simulated_device/streamed_backend.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/parity.hpp"

namespace linerate::simulated {
namespace {

using comm::Communicator;
using torch_adapter::numbers;
using torch_adapter::this_rank;

/// What a program does besides forward, backward and step().
struct Program {
  bool sets_batch = false;     // every third step
  bool leaves_unused = false;  // a layer, every fourth step, on all ranks
  bool loads = false;          // K-FAC's state as it is, in mid-run
  bool in_side = false;        // trains in a stream of its own, not in the one it was made in
  bool evaluates = false;  // in another one, every third step: waited for before step(), no sooner
};

struct Layers : torch::nn::Module {
  torch::nn::Linear a{6, 16}, sometimes{16, 16}, b{16, 5};
  Layers() {
    register_module("a", a), register_module("sometimes", sometimes), register_module("b", b);
    torch_adapter::set_weights_of_rank(*this);
    to(at::kFloat);
  }
  at::Tensor forward(at::Tensor x, bool with_all) {
    x = torch::tanh(a->forward(x));
    if (with_all) x = x + sometimes->forward(x);
    return b->forward(x);
  }
};

void let_wait(const c10::Stream& waiting, const c10::Stream& other) {
  c10::Event event(other.device_type());
  event.record(other);
  event.block(waiting);
}

/// Weights, and on a device what was not ordered.
std::pair<at::Tensor, std::string> train(Communicator& c, const std::string& strategy,
                                         const Program& program, at::Device where) {
  constexpr int kSteps = 9;
  const bool there = !where.is_cpu(), kfac = strategy.find("kfac") != std::string::npos;
  std::optional<c10::Stream> trains, evaluates;
  if (there) {
    finish_all(where.index()), forget(where.index());
    const c10::impl::VirtualGuardImpl streams(where.type());
    trains = program.in_side ? streams.getNewStream(where) : current_stream(where.index());
    evaluates = streams.getNewStream(where);
  }
  Layers net;
  net.to(where);
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  std::optional<torch_adapter::KFAC> curvature;
  torch_adapter::DataParallelOptions options{
      .strategy = strategy, .measured_steps = 2, .device_group = "of the devices"};
  if (kfac)
    options.preconditioner = &curvature.emplace(
        net, torch_adapter::KfacOptions{.loss_average = torch_adapter::LossAverage{},
                                        .optimizer = &optimizer});
  torch_adapter::DataParallel parallel(net, c, options);
  if (there) let_wait(*trains, current_stream(where.index()));
  std::optional<c10::StreamGuard> in_trains;
  if (there) in_trains.emplace(*trains);
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor x = numbers({4, 6}, step + 10 * this_rank, at::kFloat).to(where);
    const bool with_all = !program.leaves_unused || step % 4 != 3;
    if (program.sets_batch && step % 3 == 1) parallel.set_batch(4 + this_rank);
    if (program.loads && step == 4) parallel.load_curvature_state(parallel.curvature_state());
    const bool looks = program.evaluates && step % 3 == 2;
    if (looks) {
      if (there) let_wait(*evaluates, *trains);
      std::optional<c10::StreamGuard> elsewhere;
      if (there) elsewhere.emplace(*evaluates);
      const at::NoGradGuard no_grad;
      net.forward(x, with_all);
    }
    net.forward(x, with_all).square().mean().backward();
    if (looks && there) let_wait(*trains, *evaluates);
    kfac ? parallel.step(*curvature, optimizer) : parallel.step(optimizer);
  }
  parallel.settle();
  std::vector<at::Tensor> flat;
  for (const at::Tensor& p : net.parameters()) flat.push_back(p.detach().cpu().flatten());
  return {at::cat(flat), there ? asked_of(where.index()).conflicts_in_words() : ""};
}

struct Case {
  std::vector<std::string> strategies;
  Program program;
};

const std::vector<Case>& freed_cases() {
  static const std::vector<Case> all = {
      // What inverses find and replace: in the first steps, and in the first after a load.
      {{"ddp+kfac(mpd, fusion=none, factors=1, inverses=1)",
        "ddp+kfac(mem, fusion=none, factors=1, inverses=1)",
        "ddp+kfac(spd, fusion=none, factors=1, inverses=1)", "ddp+kfac(d, factors=1, inverses=1)"},
       {.loads = true}},
      // Buckets that change between a step and the next forward pass.
      {{"dear+kfac(spd, clip=off, factors=1, inverses=2)",
        "dear+kfac(mpd, clip=off, factors=1, inverses=2)"},
       {.sets_batch = true, .leaves_unused = true}},
      {{"dear+kfac(mpd, clip=off, factors=1, inverses=2)"},
       {.sets_batch = true, .leaves_unused = true, .in_side = true}},
      // Updates that an evaluation asks for.
      {{"ddp", "dear", "dear+fp16", "dear+kfac(spd, clip=off, factors=1, inverses=2)"},
       {.evaluates = true}},
      {{"dear", "dear+kfac(spd, clip=off, factors=1, inverses=2)"},
       {.in_side = true, .evaluates = true}},
  };
  return all;
}

TEST(FreedMemory, IsGivenAwayWhenNoStreamUsesItAnyMore) {
  const torch_adapter::CpuAsDevice as_device;  // the same bits
  int cases = 0;
  torch_adapter::ranks(2, [&](Communicator& c) {
    const torch_adapter::GroupOverCommunicator group("of the devices", c, {}, &streamed);
    const at::Device where = device(c.rank());
    const c10::DeviceGuard guard(where);
    for (const auto& [strategies, program] : freed_cases())
      for (const std::string& strategy : strategies) {
        const at::Tensor expected = train(c, strategy, program, at::kCPU).first;
        const auto [weights, conflicts] = train(c, strategy, program, where);
        EXPECT_EQ(conflicts, "") << strategy << ", rank " << c.rank();
        EXPECT_TRUE(at::equal(weights, expected)) << strategy << ", rank " << c.rank();
        cases += c.rank() == 0;
      }
  });
  EXPECT_EQ(cases, 13);
}

/// The steps of one rank: those that are asked for under capture are refused, and nothing of them
/// is left. A backward pass there sends nothing.
TEST(Capture, StepsAreRefusedAndTheNextOnesAreAsIfNobodyHadAsked) {
  torch_adapter::ranks(2, [](Communicator& c) {
    const torch_adapter::GroupOverCommunicator group("of the devices", c, {}, &streamed);
    const at::Device where = device(c.rank());
    const c10::DeviceGuard guard(where);
    for (const std::string strategy : {"ddp", "dear"}) {
      at::Tensor plain;
      for (const bool captures : {false, true}) {
        Layers net;
        net.to(where);
        torch::optim::SGD optimizer(net.parameters(), 0.1);
        torch_adapter::DataParallel parallel(
            net, c, {.strategy = strategy, .device_group = "of the devices"});
        for (int step = 0; step < 3; ++step) {
          const at::Tensor x = numbers({4, 6}, step + 10 * this_rank, at::kFloat).to(where);
          const at::Tensor loss = net.forward(x, true).square().mean();
          comm::gather_texts(c, "", "all are here");
          set_capturing(captures);
          loss.backward();
          if (captures) {
            const auto refused = [&](auto&& act) {
              try {
                act();
                ADD_FAILURE() << "under capture";
              } catch (const UsageError& e) {
                EXPECT_THAT(e.what(), testing::HasSubstr("under capture"));
              }
            };
            refused([&] { parallel.step(optimizer); });
            refused([&] { parallel.set_batch(1); });
          }
          comm::gather_texts(c, "", "all have asked");
          set_capturing(false);
          parallel.step(optimizer);
        }
        parallel.settle();
        const at::Tensor weights = net.a->weight.detach().cpu();
        if (captures)
          EXPECT_TRUE(at::equal(weights, plain)) << strategy;
        else
          plain = weights;
      }
    }
  });
}

}  // namespace
}  // namespace linerate::simulated
