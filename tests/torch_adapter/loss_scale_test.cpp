// What compressors keep is in units of the loss: a run under a scaler ends at the bits of the run
// without one, whatever its scale does between steps and whichever steps overflow.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "linerate/core/error.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/owed_job.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kScaledGroup = "of scaled losses";

/// By step; powers of two, as GradScaler's growth and backoff leave them.
constexpr std::array kScales = {64.0, 64.0, 4096.0, 0.125, 1.0, 65536.0, 2.0};
double scale_at(int step) { return kScales[static_cast<std::size_t>(step) % kScales.size()]; }
/// Some rank's gradients overflow: the first step, one in a warm-up of three, one after it, two in
/// a row.
bool overflows_at(int step) { return step == 0 || step == 2 || step == 7 || step == 8; }

/// How a program has its gradients.
enum class Loop { plain, accumulated, with_samples };

/// One program: its weights, and what its compressors keep.
class Training {
 public:
  Training(Communicator& communicator, const std::string& strategy, const std::string& device_group)
      : job_{communicator, strategy, false, device_group} {}

  /// Gradients of the loss times `scale`, if there is one, of which the last rank's have an
  /// infinity if the step overflows; the optimizer divides by it, or leaves out the step.
  void step(int number, Loop loop, std::optional<double> scale, bool overflows) {
    if (scale && is_half()) scale = std::min(*scale, 4096.0);  // 1.5 of it fits f16
    if (scale) job_.parallel.set_loss_scale(scale);
    if (loop == Loop::with_samples) job_.parallel.set_batch(1 + job_.communicator.rank());
    for (auto& [name, tensor] : job_.parameters) tensor.mutable_grad().reset();
    const double times = scale.value_or(1);
    if (loop == Loop::accumulated) {
      job_.parallel.accumulate([&] { backward(number, times / 2, 0); });
      backward(number, times / 2, overflows ? kFloatInfinity : 0);
    } else {
      backward(number, times, overflows ? kFloatInfinity : 0);
    }
    const StepReport report = job_.parallel.finish();
    ASSERT_EQ(report.infinite, overflows) << title(number);
    ASSERT_FALSE(report.late_infinite) << title(number);
    const torch::NoGradGuard no_grad;
    for (auto& [name, tensor] : job_.parameters) {
      ASSERT_FALSE(overflows && tensor.grad().defined()) << title(number);
      if (tensor.grad().defined()) tensor.sub_(tensor.grad() / times);
    }
  }

  void expect_same(Training& other, int number) {
    for (std::size_t p = 0; p < job_.size(); ++p)
      ASSERT_TRUE(job_.parameters[p].second.equal(other.job_.parameters[p].second))
          << title(number) << ", " << job_.parameters[p].first;
    ASSERT_EQ(job_.parallel.compression_state(), other.job_.parallel.compression_state())
        << title(number);
  }

 private:
  bool is_half() const { return rounding(job_.strategy) > 0x1p-20; }
  std::string title(int number) const { return fmt::format("{}, step {}", job_.strategy, number); }
  /// Of magnitudes that f16 holds as normal numbers: so its rounding is that of any scale. Ranks
  /// leave out a parameter that the two-phase exchange does not cut, except of 16 bits, where what
  /// is owed would travel alone.
  void backward(int number, double times, float spoilt) {
    const int rank = job_.communicator.rank();
    at::Tensor loss = torch::zeros({}, at::kFloat);
    for (std::size_t p = 0; p < job_.size(); ++p) {
      if (p == 2 && !is_half() && (number % 4 == 1 || (number % 4 == 2 && rank == 0))) continue;
      at::Tensor factor = job_.gradient(number, rank, p);
      factor = (factor + factor.sign() * 0.5) * times;
      if (rank == job_.communicator.size() - 1) factor = factor + spoilt;
      loss = loss + (job_.parameters[p].second * factor).sum();
    }
    loss.backward();
  }

  Branches job_;
};

class LossScale : public testing::TestWithParam<std::tuple<int, const char*>> {
 protected:
  /// `work` on that number of ranks, with the device group's name or none.
  static void on_ranks(const std::function<void(Communicator&, const std::string&)>& work) {
    const Warnings quiet;
    const auto [count, group_name] = GetParam();
    ranks(count, [&, name = group_name](Communicator& communicator) {
      const GroupOverCommunicator group(kScaledGroup, communicator);
      work(communicator, name);
    });
  }
};

TEST_P(LossScale, AndOverflowsLeaveTheBitsOfARunWithoutThem) {
  on_ranks([](Communicator& communicator, const std::string& group) {
    for (const std::string& strategy : coding_strategies("dear(layers=1)"))
      for (const Loop loop : {Loop::plain, Loop::accumulated, Loop::with_samples}) {
        Training scaled(communicator, strategy, group), plain(communicator, strategy, group);
        for (int step = 0; step < 12 && !HasFatalFailure(); ++step) {
          scaled.step(step, loop, scale_at(step), overflows_at(step));
          if (!overflows_at(step)) plain.step(step, loop, {}, false);
        }
        scaled.expect_same(plain, 12);
        if (HasFatalFailure()) return;
      }
  });
}

/// A vector of 64 elements under one strategy, the same on every rank.
struct OneVector {
  Communicator& communicator;
  std::string strategy, device_group;
  at::Tensor weights = torch::zeros({64}, torch::requires_grad());
  DataParallel parallel{
      {{"w", weights}}, {}, communicator, {.strategy = strategy, .device_group = device_group}};

  StepReport step(double gradient, std::optional<double> scale) {
    weights.mutable_grad().reset();
    parallel.set_loss_scale(scale);
    (weights * (gradient * scale.value_or(1))).sum().backward();
    return parallel.finish();
  }
  double mean() const { return weights.grad().min().item<double>(); }
};

/// 65504 is f16's largest; 2 ranks' sum of halves holds it exactly, one of more is 0.1 % below.
TEST_P(LossScale, MakesInfinitiesOfWhatF16CannotHold) {
  on_ranks([](Communicator& communicator, const std::string& group) {
    for (const char* strategy : {"bulk+fp16", "ddp+fp16", "dear+fp16", "optimal+fp16"}) {
      OneVector job{communicator, strategy, group};
      EXPECT_FALSE(job.step(60000.0 / 4096, 4096).infinite) << strategy;
      const auto kept = job.parallel.compression_state();
      EXPECT_TRUE(job.step(70000.0 / 4096, 4096).infinite) << strategy;
      EXPECT_EQ(job.parallel.compression_state(), kept) << strategy;
      EXPECT_FALSE(job.step(70000.0 / 4096, 2048).infinite) << strategy;
      // A scaler of scale 1 is one.
      EXPECT_TRUE(job.step(70000, 1).infinite) << strategy;
      // Without one the rest is owed.
      EXPECT_FALSE(job.step(70000, {}).infinite) << strategy;
      EXPECT_NEAR(job.mean(), 65504, 65504 * 0.003) << strategy;
      EXPECT_FALSE(job.step(0, {}).infinite) << strategy;
      EXPECT_NEAR(job.mean(), 70000 - 65504, 200) << strategy;
    }
    for (const char* strategy : {"bulk(wire=fp16)", "ddp(wire=fp16)", "dear(wire=fp16)"}) {
      const double most = communicator.size() * 70000.0;  // their shares overflow, too
      OneVector job{communicator, strategy, group};
      EXPECT_FALSE(job.step(60000, 1).infinite) << strategy;
      EXPECT_NEAR(job.mean(), 60000, 32) << strategy;
      job.step(most / 4096, 4096);
      EXPECT_TRUE(std::isinf(job.mean())) << strategy;
      EXPECT_FALSE(job.step(most, {}).late_infinite) << strategy;
      EXPECT_NEAR(job.mean(), 65504, 65504 * 0.003) << strategy;
      EXPECT_FALSE(job.step(1, {}).late_infinite) << strategy;
      // What the program made infinite stays so.
      job.step(kFloatInfinity, {});
      EXPECT_FALSE(std::isfinite(job.mean())) << strategy;
    }
  });
}

/// The bound on usable gradients, 2^64, is one of the loss, for what is encoded and what is not.
TEST_P(LossScale, DoesNotMoveTheBoundOnUsableGradients) {
  on_ranks([](Communicator& communicator, const std::string& group) {
    for (const char* strategy : {"bulk+topk(density=0.1, dense_below=0)",
                                 "bulk+powersgd(rank=1, warmup=3, dense_below=0)"}) {
      OneVector job{communicator, strategy, group};
      for (const double scale : {1.0, 0x1p16, 0x1p-16, 0x1p40}) {
        EXPECT_FALSE(job.step(0x1p60, scale).infinite) << strategy << ", " << scale;
        if (group.empty() || std::string(strategy).find("topk") != std::string::npos) {
          EXPECT_TRUE(job.step(0x1p65, scale).infinite) << strategy << ", " << scale;
        }
      }
    }
  });
}

/// Every rank throws, whichever has another scale or two in one step; the next step runs.
TEST_P(LossScale, HasToBeOneOfAllRanksAndOfAWholeStep) {
  on_ranks([](Communicator& communicator, const std::string& group) {
    OneVector job{communicator, "ddp+topk(density=0.1, dense_below=0)", group};
    const bool is_last = communicator.rank() == communicator.size() - 1;
    EXPECT_FALSE(job.step(1, 64).infinite);
    if (communicator.size() > 1) {
      EXPECT_THAT(thrown_by<Error>([&] { job.step(1, is_last ? 128 : 64); }),
                  AllOf(HasSubstr("expected the same loss scale"), HasSubstr("64 on rank 0"),
                        HasSubstr("128 on rank")));
    }
    const auto kept = job.parallel.compression_state();
    EXPECT_THAT(thrown_by<Error>([&] {
                  job.weights.mutable_grad().reset();
                  job.parallel.set_loss_scale(64);
                  job.parallel.accumulate([&] { job.weights.sum().backward(); });
                  if (is_last) job.parallel.set_loss_scale(32);
                  job.weights.sum().backward();
                  job.parallel.finish();
                }),
                AllOf(HasSubstr("under 64 and 32"), HasSubstr("clear the gradients first")));
    EXPECT_EQ(job.parallel.compression_state(), kept);
    // Gradients that are cleared before the other scale's come are none.
    job.weights.mutable_grad().reset();
    job.parallel.set_loss_scale(64);
    job.weights.sum().backward();
    EXPECT_FALSE(job.step(1, 32).infinite);
    for (const double wrong : {0.0, -1.0, std::nan(""), 1e-45, 1e39, HUGE_VAL})
      EXPECT_THROW(job.parallel.set_loss_scale(wrong), UsageError) << wrong;
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, LossScale,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::Values("", kScaledGroup)),
                         [](const auto& named) {
                           return fmt::format("{}{}", std::get<0>(named.param),
                                              *std::get<1>(named.param) ? "Enqueued" : "");
                         });

}  // namespace
}  // namespace linerate::torch_adapter
