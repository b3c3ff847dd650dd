// Uses that programs make of a model, on the simulated device. The weights are the CPU's, nothing
// is used before it is there, and the host waits for nothing that is not named.
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <limits>
#include <list>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "simulated_device/learner.hpp"
#include "simulated_device/simulated_device.hpp"
#include "simulated_device/streamed_backend.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::simulated {
namespace {

using comm::Communicator;
using namespace torch_adapter;  // what is tested

constexpr int kUsedSteps = 8;

/// Whether the CPU's code without streams computes the same bits; else a device's code stands for
/// it, on the CPU, where what is enqueued is done at once. torch.stream_training compares both.
bool is_same_arithmetic(const std::string& strategy) {
  return !preconditions(strategy) && strategy.find("powersgd") == std::string::npos;
}

/// One rank's run of a use, on the CPU or on its device.
struct Run {
  Communicator& communicator;
  const std::string& strategy;
  at::Device device;
  std::list<Learner> learners = {};
  std::vector<at::Tensor> seen = {};  // besides weights: what has to be the CPU's

  Learner& learner(DataParallelOptions options = {}) {
    options.strategy = strategy;
    if (!device.is_cpu() || !is_same_arithmetic(strategy)) options.device_group = kOfLearners;
    if (options.name.empty()) options.name = fmt::format("model {}", learners.size());
    RECORD_USER_SCOPE("wrapping");  // for what the host waits then
    return learners.emplace_back(communicator, device, options);
  }
  int rank() const { return communicator.rank(); }
};

// ---- streams as programs use them; nothing on the CPU ----

using MaybeStream = std::optional<c10::Stream>;

MaybeStream current_stream(at::Device device) {
  if (device.is_cpu()) return {};
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}
MaybeStream new_stream(at::Device device) {
  if (device.is_cpu()) return {};
  return c10::impl::VirtualGuardImpl(device.type()).getNewStream(device);
}
void wait_for(const MaybeStream& then, const MaybeStream& first) {
  if (!then) return;
  c10::Event event(first->device_type());
  event.record(*first);
  event.block(*then);
}
/// While it lives, `stream` is current. It begins after what was current.
class InStream {
 public:
  explicit InStream(const MaybeStream& stream) {
    if (!stream) return;
    wait_for(stream, current_stream(stream->device()));
    guard_.emplace(*stream);
  }

 private:
  std::optional<c10::StreamGuard> guard_;
};

/// What the host does here it waits for: it is the program's.
template <typename Act>
auto of_program(Act&& act) {
  RECORD_USER_SCOPE("the program");
  return act();
}

// ---- the uses ----

void plain(Run& run) {
  Learner& l = run.learner();
  for (int step = 0; step < kUsedSteps; ++step) {
    l.pass(step);
    l.step();
  }
}

void unused_layers(Run& run) {
  Learner& l = run.learner();
  for (int step = 0; step < kUsedSteps; ++step) {
    l.pass(step, step % 4 != 3 && (step % 4 != 2 || run.rank() == 0));
    l.step();
  }
}

void unequal_batches(Run& run) {
  Learner& l = run.learner();
  for (int step = 0; step < kUsedSteps; ++step) {
    if (step % 3 == 1) l.parallel->set_batch(kRows + run.rank());
    l.pass(step, step % 4 != 3);
    l.step();
  }
}

void accumulation(Run& run) {
  Learner& l = run.learner();
  for (int step = 0; step < kUsedSteps; ++step) {
    if (step % 3 != 0) l.parallel->accumulate([&] { l.pass(step + 0.25); });
    l.pass(step);
    l.step();
  }
}

/// A step whose passes all only accumulate, and one without a pass, too.
void no_sync(Run& run) {
  Learner& l = run.learner();
  for (int step = 0; step < kUsedSteps; ++step) {
    {
      const auto guard = l.parallel->no_sync();
      l.pass(step + 0.25);
      l.pass(step + 0.5, false);
    }
    if (step % 3 != 2) l.pass(step);
    l.step();
  }
}

void finish_and_steps_apart(Run& run) {
  Learner& l = run.learner();
  for (int step = 0; step < kUsedSteps; ++step) {
    l.pass(step);
    l.step_apart();
  }
}

/// Wrapped in the default stream, trained in another one.
void side_stream(Run& run) {
  Learner& l = run.learner();
  const MaybeStream here = current_stream(run.device), side = new_stream(run.device);
  {
    const InStream current(side);
    for (int step = 0; step < kUsedSteps; ++step) {
      l.pass(step);
      l.step();
    }
    l.parallel->settle();
  }
  wait_for(here, side);
}

/// Wrapped in another stream than the default one; each step in one of the two.
void streams_in_turn(Run& run) {
  const MaybeStream here = current_stream(run.device), side = new_stream(run.device);
  Learner* l = nullptr;
  {
    const InStream current(side);
    l = &run.learner();
  }
  for (int step = 0; step < kUsedSteps; ++step) {
    wait_for(here, side);
    std::optional<InStream> current;
    if (step % 3 != 1) current.emplace(side);
    l->pass(step);
    l->step();
  }
  wait_for(here, side);
}

/// In another stream, which waits for the training stream; that waits for it before it goes on.
void evaluation(Run& run, bool before_the_update_alone) {
  Learner& l = run.learner();
  const MaybeStream here = current_stream(run.device), other = new_stream(run.device);
  for (int step = 0; step < kUsedSteps; ++step) {
    const bool evaluates = step % 3 == 2;
    if (evaluates) {
      const InStream current(other);
      const torch::NoGradGuard no_grad;
      // The part of it that has no buffers: batch norm writes them, which would want a wait.
      const at::Tensor x = numbers({kRows, 64}, step, run.device);
      run.seen.push_back(l.net.last(torch::tanh(l.net.hidden(x))).sum());
    }
    if (!before_the_update_alone) wait_for(here, other);
    l.pass(step);
    if (before_the_update_alone) wait_for(here, other);
    l.step();
  }
}
void evaluation_before_the_pass(Run& run) { evaluation(run, false); }
void evaluation_before_the_update(Run& run) { evaluation(run, true); }

/// By measured times, trials against ddp and steps that depart from what was predicted.
void new_plans(Run& run) {
  Learner& l = run.learner({.measured_steps = 1, .replan_above = 0, .most_above_ddp = 0.01});
  for (int step = 0; step < kUsedSteps + 4; ++step) {
    l.pass(step, step % 4 != 3);
    l.step();
  }
}

/// Goes three steps back.
void checkpoint(Run& run) {
  Learner& l = run.learner();
  std::vector<at::Tensor> weights;
  std::vector<std::string> owed;
  std::optional<KfacState> curvature;
  for (int step = 0; step < kUsedSteps; ++step) {
    if (step == 3) {
      of_program([&] {
        l.parallel->settle();
        for (const at::Tensor& p : l.net.parameters()) weights.push_back(p.detach().cpu().clone());
        owed = l.parallel->compression_state();
        if (l.curvature) curvature.emplace(l.parallel->curvature_state());
        return 0;
      });
    }
    if (step == 6) {
      of_program([&] {
        const torch::NoGradGuard no_grad;
        const auto parameters = l.net.parameters();
        for (std::size_t i = 0; i < weights.size(); ++i) parameters[i].copy_(weights[i]);
        l.parallel->load_compression_state(owed, "the checkpoint");
        if (curvature) l.parallel->load_curvature_state(*curvature);
        l.optimizer.state().clear();
        return 0;
      });
    }
    l.pass(step);
    l.step();
  }
}

/// Of a forward pass on all ranks, of a backward pass on one, of a step that one rank refuses.
void exceptions(Run& run) {
  Learner& l = run.learner();
  const auto break_backward = [&](double step, bool breaks) {
    const at::Tensor x = numbers({kRows, 2, 4, 4}, step, run.device);
    const at::Tensor between = torch::tanh(l.net.norm(l.net.first(x))).flatten(1);
    if (breaks)
      between.register_hook(
          [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("broken"); });
    l.net.last(torch::tanh(l.net.hidden(between))).square().mean().backward();
  };
  for (int step = 0; step < kUsedSteps; ++step) {
    if (step == 2) {
      const auto forward = [&] {
        l.net.hidden(l.net.norm(l.net.first(numbers({kRows, 2, 4, 4}, 0, run.device))).flatten(1));
        throw std::runtime_error("its batch is damaged");
      };
      EXPECT_THROW(forward(), std::runtime_error);
    }
    if (step == 3 || step == 6) {
      const bool breaks = step == 3 || run.rank() == 1;
      try {
        break_backward(step, breaks);
        EXPECT_FALSE(breaks);
      } catch (const std::runtime_error&) {
        EXPECT_TRUE(breaks);
      }
      l.parallel->skip_step();
      EXPECT_FALSE(l.net.hidden->weight.grad().defined());
      continue;
    }
    l.pass(step);
    if (step == 5) {
      if (run.rank() == 1) l.parallel->refuse_step("its file is damaged");
      EXPECT_NE(thrown_by<InputError>([&] { l.parallel->finish(); }).find("its file is damaged"),
                std::string::npos);
      l.optimizer.zero_grad();
      continue;
    }
    l.step();
  }
}

void frozen_and_thawed(Run& run) {
  Learner& l = run.learner();
  for (int step = 0; step < kUsedSteps; ++step) {
    if (step == 3) l.net.norm->weight.set_requires_grad(false);
    if (step == 3) l.net.last->bias.set_requires_grad(false);
    if (step == 6) l.net.norm->weight.set_requires_grad(true);
    if (step == 6) l.net.last->bias.set_requires_grad(true);
    l.pass(step);
    l.step();
  }
}

/// As a GradScaler does: a step whose gradients are not finite is left out on all ranks, and halves
/// the scale.
void scaled_losses(Run& run) {
  Learner& l = run.learner();
  double scale = 1024;
  for (int step = 0; step < kUsedSteps; ++step) {
    const bool overflows = step == 0 || step == 1 || (step == 5 && run.rank() == 1);
    l.parallel->set_loss_scale(scale);
    (l.loss(step) * scale * (overflows ? std::numeric_limits<double>::infinity() : 1)).backward();
    bool finite = !l.parallel->finish().infinite;
    if (finite) {
      for (at::Tensor& p : l.net.parameters())
        if (p.grad().defined()) {
          p.mutable_grad().mul_(1 / scale);
          finite =
              of_program([&] { return torch::isfinite(p.grad()).all().item<bool>(); }) && finite;
        }
    }
    EXPECT_EQ(finite, step != 0 && step != 1 && step != 5) << "step " << step;
    if (finite) {
      if (l.curvature) l.curvature->step();
      l.optimizer.step();
    } else {
      scale /= 2;
    }
    l.optimizer.zero_grad();
  }
}

/// Their passes and steps alternate, and one of them learns from the other.
void two_models(Run& run) {
  Learner &a = run.learner(), &b = run.learner();
  for (int step = 0; step < kUsedSteps; ++step) {
    a.pass(step);
    const at::Tensor x = numbers({kRows, 2, 4, 4}, step + run.rank(), run.device);
    if (step % 2 == 0) a.step();
    at::Tensor target;
    {
      const torch::NoGradGuard no_grad;
      target = a.net.forward(x, true);
    }
    torch::nn::functional::mse_loss(b.net.forward(x, step % 3 != 2), target).backward();
    if (step % 2 == 1) a.step();
    b.step();
  }
}

struct Use {
  const char* name;
  void (*train)(Run&);
  const char* waits = nullptr;  // in the words of those of the host that belong to it
  bool with_curvature = true;
};
constexpr Use kUses[] = {
    {"plain", plain},
    {"unused_layers", unused_layers},
    {"unequal_batches", unequal_batches},
    {"accumulation", accumulation},
    {"no_sync", no_sync},
    {"finish_and_steps_apart", finish_and_steps_apart},
    {"side_stream", side_stream},
    {"streams_in_turn", streams_in_turn},
    {"evaluation_before_the_pass", evaluation_before_the_pass},
    {"evaluation_before_the_update", evaluation_before_the_update},
    {"new_plans", new_plans},
    {"checkpoint", checkpoint, "[encode"},  // what was loaded goes to the device
    {"exceptions", exceptions},
    {"frozen_and_thawed", frozen_and_thawed},
    // Under a compressor finish() asks whether the step counts. K-FAC takes such a step for zero.
    {"scaled_losses", scaled_losses, "_local_scalar_dense", false},
    {"two_models", two_models},
};
constexpr const char* kStrategies[] = {"ddp(first=64B, bucket=1KiB)", "dear",
                                       "ddp+topk(dense_below=0)"};
/// One after the other: each use by one of them.
constexpr const char* kWithCurvature[] = {"ddp+kfac(spd)", "ddp+kfac(mpd)", "ddp+kfac(d)"};

/// Of the host, with the reasons.
bool is_named(const std::string& wait, const Use& use, const std::string& strategy) {
  if (wait.ends_with("[the program]") || wait.ends_with("[wrapping]")) return true;
  if (use.waits != nullptr && wait.find(use.waits) != std::string::npos) return true;
  // Between steps, for a plan by measured times: of what is probed, and when a window is full.
  const bool plans_by_times = strategy.starts_with("dear") || preconditions(strategy);
  return plans_by_times && (wait == "an event" || wait == "an event [compare clocks]" ||
                            wait == "an event [times of measured steps]");
}

at::Tensor trained(Communicator& communicator, const Use& use, const std::string& strategy,
                   at::Device device) {
  Run run{communicator, strategy, device};
  use.train(run);
  for (Learner& l : run.learners) l.parallel->settle();
  return of_program([&] {
    std::vector<at::Tensor> flat;
    const auto add = [&](const at::Tensor& t) {
      flat.push_back(t.detach().cpu().flatten().to(at::kDouble));
    };
    for (const at::Tensor& t : run.seen) add(t);
    for (const Learner& l : run.learners) {
      for (const at::Tensor& p : l.net.parameters()) add(p);
      for (const at::Tensor& b : l.net.buffers()) add(b);
    }
    return torch::cat(flat);
  });
}

using UseOf = std::tuple<Use, std::string, int>;  // strategy, ranks
class SimulatedUses : public testing::TestWithParam<UseOf> {};

TEST_P(SimulatedUses, EndsAtTheCpusWeights) {
  const auto& [use, strategy, size] = GetParam();
  std::optional<CpuAsDevice> as_device;
  if (!is_same_arithmetic(strategy)) as_device.emplace();
  comm::run_ranks(size, [&, &use = use, &strategy = strategy](Communicator& communicator) {
    const GroupOverCommunicator group(kOfLearners, communicator, {}, &streamed);
    const at::Tensor expected = trained(communicator, use, strategy, at::kCPU);
    const at::Device mine = device(communicator.rank());
    const c10::DeviceGuard guard(mine);
    forget(mine.index());
    const at::Tensor found = trained(communicator, use, strategy, mine);
    const double error = (found - expected).norm().item<double>() / expected.norm().item<double>();
    if (communicator.size() == 2)
      EXPECT_TRUE(found.equal(expected)) << error;
    else
      EXPECT_LE(error, 1e-5);
    const Asked asked = asked_of(mine.index());
    EXPECT_TRUE(asked.conflicts.empty()) << asked.conflicts_in_words();
    for (const auto& [what, times] : asked.host_waits)
      EXPECT_TRUE(is_named(what, use, strategy)) << "host wait, " << times << " times: " << what;
    finish_all(mine.index());
  });
}

std::string word_of(const std::string& text) {
  std::string word;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      word += c;
    else if (!word.empty() && word.back() != '_')
      word += '_';
  }
  return word;
}

std::string name_of(const testing::TestParamInfo<UseOf>& info) {
  const auto& [use, strategy, size] = info.param;
  return word_of(fmt::format("{} of {} on {}", use.name, strategy, size));
}

std::vector<UseOf> all_uses() {
  std::vector<UseOf> all;
  std::size_t turn = 0;
  for (const Use& use : kUses) {
    for (const char* strategy : kStrategies) all.emplace_back(use, strategy, 2);
    all.emplace_back(use, "dear", 3);
    if (use.with_curvature) all.emplace_back(use, kWithCurvature[turn++ % 3], 2);
  }
  // Inputs begin a step, and the plan has variants: buckets are made anew under gathers.
  all.emplace_back(kUses[2], "dear+kfac(spd, clip=off, factors=1, inverses=2)", 2);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, SimulatedUses, testing::ValuesIn(all_uses()), name_of);

}  // namespace
}  // namespace linerate::simulated
