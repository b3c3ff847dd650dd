// Uses that programs make of a model, on the simulated device. The weights are the CPU's, nothing
// is used before it is there, and the host waits for nothing that is not named.
#include <ATen/record_function.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>

#include <atomic>
#include <cctype>
#include <cstdio>
#include <limits>
#include <list>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/error.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "simulated_device/learner.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::simulated {
namespace {

using testing::HasSubstr;
using torch_adapter::CpuAsDevice;
using torch_adapter::KfacState;
using torch_adapter::thrown_by;

/// Whether the CPU's code without streams computes the same bits; else a device's code stands for
/// it, on the CPU, where what is enqueued is done at once. torch.stream_training compares both.
bool is_same_arithmetic(const std::string& strategy) {
  return !preconditions(strategy) && strategy.find("powersgd") == std::string::npos;
}

// ---- streams as programs use them; none on the CPU ----

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

/// One rank's run of a use, on the CPU or on its device.
struct Run {
  Communicator& communicator;
  const std::string& strategy;
  at::Device device;
  /// Sums of three numbers depend on their order. In f64 the difference stays small, while f32's
  /// grows from step to step.
  at::ScalarType type = communicator.size() == 2 ? at::kFloat : at::kDouble;
  std::list<Learner> learners = {};
  std::vector<at::Tensor> seen = {};  // besides weights: what has to be the CPU's
  MaybeStream here = current_stream(device), side = new_stream(device), other = new_stream(device);
  double scale = 1024;  // of losses
  // A checkpoint.
  std::vector<at::Tensor> weights = {};
  std::vector<std::string> owed = {};
  std::optional<KfacState> curvature = {};

  Learner& learner(DataParallelOptions options) {
    options.strategy = strategy;
    if (!device.is_cpu() || !is_same_arithmetic(strategy)) options.device_group = kOfLearners;
    if (options.name.empty()) options.name = fmt::format("model {}", learners.size());
    RECORD_USER_SCOPE("wrapping");  // for what the host waits then
    return learners.emplace_back(communicator, device, options, type);
  }
  int rank() const { return communicator.rank(); }
};

// ---- a step of each use ----

void plain(Run&, Learner& l, int step) {
  l.pass(step);
  l.step();
}

void unused_layers(Run& run, Learner& l, int step) {
  l.pass(step, step % 4 != 3 && (step % 4 != 2 || run.rank() == 0));
  l.step();
}

void unequal_batches(Run& run, Learner& l, int step) {
  if (step % 3 == 1) l.parallel->set_batch(kRows + run.rank());
  l.pass(step, step % 4 != 3);
  l.step();
}

void accumulation(Run&, Learner& l, int step) {
  if (step % 3 != 0) l.parallel->accumulate([&] { l.pass(step + 0.25); });
  l.pass(step);
  l.step();
}

/// A step whose passes all only accumulate, and one without a pass, too.
void no_sync(Run&, Learner& l, int step) {
  {
    const auto guard = l.parallel->no_sync();
    l.pass(step + 0.25);
    l.pass(step + 0.5, false);
  }
  if (step % 3 != 2) l.pass(step);
  l.step();
}

void finish_and_steps_apart(Run&, Learner& l, int step) {
  l.pass(step);
  l.step_apart();
}

void frozen_and_thawed(Run&, Learner& l, int step) {
  for (at::Tensor* p : {&l.net.norm->weight, &l.net.head->bias})
    if (step == 3 || step == 6) p->set_requires_grad(step == 6);
  l.pass(step);
  l.step();
}

/// K-FAC's state as it is, in mid-run: what inverses find and replace, as in the first steps.
void loaded_curvature(Run&, Learner& l, int step) {
  if (step == 4) {
    RECORD_USER_SCOPE("the program");  // for what the host waits then
    l.parallel->load_curvature_state(l.parallel->curvature_state());
  }
  l.pass(step);
  l.step();
}

/// In the default stream, or in another one, where the model was wrapped.
void streams_in_turn(Run& run, Learner& l, int step) {
  wait_for(run.here, run.side);
  std::optional<InStream> current;
  if (step % 3 != 1) current.emplace(run.side);
  plain(run, l, step);
}

/// In another stream, which waits for the training stream; that waits for it before it goes on.
template <bool before_the_update_alone>
void evaluation(Run& run, Learner& l, int step) {
  const MaybeStream here = current_stream(run.device);
  if (step % 3 == 2) {
    const InStream current(run.other);
    const torch::NoGradGuard no_grad;
    // The layers that have no buffers: batch norm writes them, which would want a wait.
    const at::Tensor x = torch::tanh(l.net.conv(l.images(step))).flatten(1);
    run.seen.push_back(l.net.head(torch::tanh(l.net.sometimes(x))).sum());
  }
  if (!before_the_update_alone) wait_for(here, run.other);
  l.pass(step);
  if (before_the_update_alone) wait_for(here, run.other);
  l.step();
}

void new_plans(Run&, Learner& l, int step) {
  l.pass(step, step % 4 != 3);
  l.step();
}

/// Goes three steps back.
void checkpoint(Run& run, Learner& l, int step) {
  const auto parameters = l.net.parameters();
  if (step == 3) {
    RECORD_USER_SCOPE("the program");
    l.parallel->settle();
    for (const at::Tensor& p : parameters) run.weights.push_back(p.detach().cpu().clone());
    run.owed = l.parallel->compression_state();
    if (l.curvature) run.curvature.emplace(l.parallel->curvature_state());
  }
  if (step == 6) {
    RECORD_USER_SCOPE("the program");
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(run.weights[i]);
    l.parallel->load_compression_state(run.owed, "the checkpoint");
    if (run.curvature) l.parallel->load_curvature_state(*run.curvature);
    l.optimizer.state().clear();
  }
  plain(run, l, step);
}

/// Of a forward pass on all ranks, of a backward pass on one, of a step that one rank refuses.
void exceptions(Run& run, Learner& l, int step) {
  if (step == 2) {
    const auto forward = [&] {
      l.net.sometimes(l.net.hidden(l.images(0)));
      throw std::runtime_error("its batch is damaged");
    };
    EXPECT_THROW(forward(), std::runtime_error);
  }
  if (step == 3 || step == 6) {
    const bool breaks = step == 3 || run.rank() == 1;
    const at::Tensor between = l.net.hidden(l.images(step));
    if (breaks)
      between.register_hook(
          [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("broken"); });
    try {
      l.net.head(torch::tanh(l.net.sometimes(between))).square().mean().backward();
      EXPECT_FALSE(breaks);
    } catch (const std::runtime_error&) {
      EXPECT_TRUE(breaks);
    }
    l.parallel->skip_step();
    EXPECT_FALSE(l.net.head->weight.grad().defined());
    return;
  }
  l.pass(step);
  if (step != 5) return static_cast<void>(l.step());
  if (run.rank() == 1) l.parallel->refuse_step("its file is damaged");
  EXPECT_THAT(thrown_by<InputError>([&] { l.parallel->finish(); }),
              HasSubstr("its file is damaged"));
  l.optimizer.zero_grad();
}

/// As a GradScaler does: a step whose gradients are not finite is left out on all ranks, and halves
/// the scale.
void scaled_losses(Run& run, Learner& l, int step) {
  const bool overflows = step == 0 || step == 1 || (step == 5 && run.rank() == 1);
  l.parallel->set_loss_scale(run.scale);
  const double factor = overflows ? std::numeric_limits<double>::infinity() : 1;
  (l.loss(step) * run.scale * factor).backward();
  bool finite = !l.parallel->finish().infinite;
  if (finite) {
    for (at::Tensor& p : l.net.parameters())
      if (p.grad().defined()) {
        p.mutable_grad().mul_(1 / run.scale);
        RECORD_USER_SCOPE("the program");
        finite = torch::isfinite(p.grad()).all().item<bool>() && finite;
      }
  }
  EXPECT_EQ(finite, step != 0 && step != 1 && step != 5) << "step " << step;
  if (finite) {
    if (l.curvature) l.curvature->step();
    l.optimizer.step();
  } else {
    run.scale /= 2;
  }
  l.optimizer.zero_grad();
}

/// Their passes and steps alternate, and one of them learns from the other.
void two_models(Run& run, Learner& a, int step) {
  if (step == 0) run.learner({});
  Learner& b = run.learners.back();
  a.pass(step);
  const at::Tensor x = a.images(step);
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

constexpr const char* kSpdUnderDear = "dear+kfac(spd, clip=off, factors=1, inverses=2)";
constexpr const char* kMpdUnderDear = "dear+kfac(mpd, clip=off, factors=1, inverses=2)";

enum class By { all, all_but_curvature, others_alone };
enum class Side { unused, wraps, trains };  // what a stream besides the default one is current for
struct Use {
  const char* name;
  void (*step)(Run&, Learner&, int);
  By by = By::all;
  std::vector<const char*> others = {};  // strategies of this use alone
  const char* waits = nullptr;           // in the words of those of the host that belong to it
  Side side = Side::unused;
  DataParallelOptions options = {};
  int steps = 8;
};
const Use kUses[] = {
    {"plain", plain},
    {"unused_layers", unused_layers},
    // Inputs begin a step, and the plan has variants: buckets are made anew under gathers.
    {"unequal_batches", unequal_batches, By::all, {kSpdUnderDear, kMpdUnderDear}},
    {"accumulation", accumulation},
    {"no_sync", no_sync},
    {"finish_and_steps_apart", finish_and_steps_apart},
    {.name = "side_stream", .step = plain, .side = Side::trains},
    {.name = "streams_in_turn", .step = streams_in_turn, .side = Side::wraps},
    {"evaluation_before_the_pass", evaluation<false>},
    // Which asks for updates that wait.
    {"evaluation_before_the_update",
     evaluation<true>,
     By::all,
     {"ddp", "dear+fp16", kSpdUnderDear}},
    // By measured times, trials against ddp and steps that depart from what was predicted.
    {.name = "new_plans",
     .step = new_plans,
     .options = {.measured_steps = 1, .replan_above = 0, .most_above_ddp = 0.01},
     .steps = 12},
    {"checkpoint", checkpoint, By::all, {}, "[encode"},  // what was loaded goes to the device
    {"exceptions", exceptions},
    {"frozen_and_thawed", frozen_and_thawed},
    // Under a compressor finish() asks whether the step counts. K-FAC takes such a step for zero.
    {"scaled_losses", scaled_losses, By::all_but_curvature, {}, "_local_scalar_dense"},
    {"two_models", two_models},
    {"unequal_batches_in_a_side_stream",
     unequal_batches,
     By::others_alone,
     {kMpdUnderDear},
     nullptr,
     Side::trains},
    {"evaluation_of_a_side_stream",
     evaluation<true>,
     By::others_alone,
     {"dear", kSpdUnderDear},
     nullptr,
     Side::trains},
    // Under mem another Plan may give layers other owners, by way of the host.
    {"loaded_curvature",
     loaded_curvature,
     By::others_alone,
     {"ddp+kfac(mpd, fusion=none, factors=1, inverses=1)",
      "ddp+kfac(mem, fusion=none, factors=1, inverses=1)",
      "ddp+kfac(spd, fusion=none, factors=1, inverses=1)", "ddp+kfac(d, factors=1, inverses=1)"},
     "pageable memory"},
};
constexpr const char* kStrategies[] = {"ddp(first=64B, bucket=1KiB)", "dear",
                                       "ddp+topk(dense_below=0)"};
/// One after the other: each use by one of them.
constexpr const char* kWithCurvature[] = {"ddp+kfac(spd)", "ddp+kfac(mpd)", "ddp+kfac(d)"};

/// Of the host, with the reasons.
bool is_named(const std::string& wait, const Use& use, const std::string& strategy) {
  if (wait.ends_with("[the program]") || wait.ends_with("[wrapping]")) return true;
  if (use.waits != nullptr && wait.find(use.waits) != std::string::npos) return true;
  return is_of_times(wait) && (strategy.starts_with("dear") || preconditions(strategy));
}

at::Tensor trained(Communicator& communicator, const Use& use, const std::string& strategy,
                   at::Device device) {
  Run run{communicator, strategy, device};
  const auto in_side = [&](bool is_current, const auto& act) {
    std::optional<InStream> current;
    if (is_current) current.emplace(run.side);
    act();
  };
  in_side(use.side == Side::wraps, [&] { run.learner(use.options); });
  in_side(use.side == Side::trains, [&] {
    Learner& first = run.learners.front();
    for (int step = 0; step < use.steps; ++step) use.step(run, first, step);
    if (use.side == Side::trains) first.parallel->settle();
  });
  if (use.side != Side::unused) wait_for(run.here, run.side);
  for (Learner& l : run.learners) l.parallel->settle();
  RECORD_USER_SCOPE("the program");
  std::vector<at::Tensor> flat;
  for (const at::Tensor& t : run.seen) flat.push_back(t.cpu().flatten().to(at::kDouble));
  for (const Learner& l : run.learners) flat.push_back(l.state());
  return torch::cat(flat);
}

using UseOf = std::tuple<Use, std::string, int>;  // strategy, ranks
class SimulatedUses : public testing::TestWithParam<UseOf> {};

TEST_P(SimulatedUses, EndsAtTheCpusWeights) {
  const auto& [use, strategy, size] = GetParam();
  std::optional<CpuAsDevice> as_device;
  if (!is_same_arithmetic(strategy)) as_device.emplace();
  on_devices(size, [&, &use = use, &strategy = strategy](Communicator& c, at::Device mine) {
    const at::Tensor expected = trained(c, use, strategy, at::kCPU);
    const at::Tensor found = trained(c, use, strategy, mine);
    const double error = torch_adapter::relative_error(found, expected);
    if (c.size() == 2)
      EXPECT_TRUE(found.equal(expected)) << error;
    else
      EXPECT_LE(error, 1e-12);
    const Asked asked = asked_of(mine.index());
    EXPECT_TRUE(asked.conflicts.empty()) << asked.conflicts_in_words();
    for (const auto& [what, times] : asked.host_waits)
      EXPECT_TRUE(is_named(what, use, strategy)) << "host wait, " << times << " times: " << what;
  });
}

std::string name_of(const testing::TestParamInfo<UseOf>& info) {
  const auto& [use, strategy, size] = info.param;
  std::string name = fmt::format("{} of {} on {}", use.name, strategy, size);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

std::vector<UseOf> all_uses() {
  std::vector<UseOf> all;
  std::size_t turn = 0;
  for (const Use& use : kUses) {
    for (const char* strategy : use.others) all.emplace_back(use, strategy, 2);
    if (use.by == By::others_alone) continue;
    for (const char* strategy : kStrategies) all.emplace_back(use, strategy, 2);
    all.emplace_back(use, "dear", 3);
    if (use.by == By::all) all.emplace_back(use, kWithCurvature[turn++ % 3], 2);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, SimulatedUses, testing::ValuesIn(all_uses()), name_of);

/// The steps of one rank: those that are asked for under capture are refused, and nothing of them
/// is left. A backward pass there sends nothing.
TEST(Capture, StepsAreRefusedAndTheNextOnesAreAsIfNobodyHadAsked) {
  on_devices(2, [](Communicator& c, at::Device mine) {
    for (const std::string strategy : {"ddp", "dear"}) {
      const auto weights = [&](bool captures) {
        Learner l(c, mine, {.strategy = strategy, .device_group = kOfLearners});
        for (int step = 0; step < 3; ++step) {
          const at::Tensor loss = l.loss(step);
          comm::gather_texts(c, "", "all are here");
          set_capturing(captures);
          loss.backward();
          if (captures) {
            EXPECT_THAT(thrown_by([&] { l.step(); }), HasSubstr("under capture"));
            EXPECT_THAT(thrown_by([&] { l.parallel->set_batch(1); }), HasSubstr("under capture"));
          }
          comm::gather_texts(c, "", "all have asked");
          set_capturing(false);
          l.step();
        }
        l.parallel->settle();
        return l.state();
      };
      EXPECT_TRUE(at::equal(weights(true), weights(false))) << strategy;
    }
  });
}

// ---- Each wait of a stream is left out, one after the other. A use out of order is then found, or
// a rule says why there is none.

/// Why nothing was missing without a wait; empty: something was, or nothing is known to say so.
/// `without`: of a job that left it out. A stream always waits for the ends of its collectives, and
/// K-FAC's Plan orders more than memory: before what came is used, the user may wait anyway.
std::string rule_of(const AskedWait& wait, const Asked& without, bool by_curvature) {
  if (wait.is_known) return "all was known";
  if (!without.worked_without) return "a later wait says the same before anything is done";
  const bool is_of_collective = wait.first >= kFirstInner;
  if ((is_of_collective || by_curvature) && without.conflicts.empty() && !without.still_without)
    return "a later wait says the same before what it is for is used";
  return "";
}

/// What was found of the waits of a strategy, on rank 1 of 2.
struct Found {
  std::atomic<std::int64_t> waits = 0;  // of a step
  std::int64_t caught = 0;
  std::map<std::string, std::int64_t> excused;  // by rule
};

/// Leaves out each wait of step(), in a step of its own, which another one follows: what is used
/// again then has been used before. On rank 1, to which rank 0 broadcasts its buffers.
template <typename Step>
void leave_out_each(Communicator& communicator, bool by_curvature, Found& found, Step&& step) {
  const int device = communicator.rank();
  const bool looks = device == 1;
  forget(device);
  step();
  if (looks) found.waits = static_cast<std::int64_t>(asked_of(device).waits.size());
  step();  // ends when all ranks have come to its end
  const std::int64_t waits = found.waits;
  for (std::int64_t number = 0; number < waits; ++number) {
    forget(device);
    if (looks) leave_out_wait(device, number);
    step();
    const auto asked_waits = asked_of(device).waits;
    step();
    if (!looks) continue;
    EXPECT_EQ(asked_waits.size(), static_cast<std::size_t>(waits));
    const AskedWait& wait = asked_waits.at(static_cast<std::size_t>(number));
    const Asked asked = asked_of(device);
    const std::string rule = rule_of(wait, asked, by_curvature);
    found.caught += !asked.conflicts.empty();
    if (!rule.empty()) ++found.excused[rule];
    if (asked.conflicts.empty() == rule.empty())
      ADD_FAILURE() << fmt::format(
          "wait {} of {}, of stream {} for {}, of \"{}\": {}", number, waits, wait.stream,
          wait.first, wait.task,
          rule.empty() ? "nothing was found" : rule + ", but " + asked.conflicts_in_words(1));
  }
}

class LeftOutWaits : public testing::TestWithParam<const char*> {};

TEST_P(LeftOutWaits, AreFoundUnlessARuleExcusesThem) {
  Found found;
  on_devices(2, [&](Communicator& communicator, at::Device mine) {
    Learner learner(communicator, mine,
                    {.strategy = GetParam(),
                     .measured_steps = 1,
                     .replan_above = std::numeric_limits<double>::infinity(),
                     .device_group = kOfLearners});
    double seed = 0;
    const auto step = [&] {
      learner.parallel->set_batch(kRows + communicator.rank());
      learner.pass(++seed);
      learner.step();
    };
    for (int i = 0; i < 6; ++i) step();  // until the plan stays
    leave_out_each(communicator, preconditions(GetParam()), found, step);
    learner.parallel->settle();
  });
  std::string line = fmt::format("{}: {} waits are found", GetParam(), found.caught);
  for (const auto& [rule, times] : found.excused) line += fmt::format(", {}: {}", rule, times);
  std::printf("%s\n", line.c_str());
  EXPECT_GT(found.caught, 0);
}

INSTANTIATE_TEST_SUITE_P(All, LeftOutWaits,
                         testing::Values("ddp(first=64B, bucket=1KiB)", "dear(layers=1)",
                                         "ddp+powersgd(dense_below=0)",
                                         "ddp+kfac(spd, factors=1, inverses=1)"));

}  // namespace
}  // namespace linerate::simulated
