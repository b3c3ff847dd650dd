// sent + owed = given over runs that go on with another number of ranks, another exchange, other
// options or another compressor.
#include <fmt/core.h>

#include "linerate/comm/fingerprint.hpp"
#include "torch_adapter/owed_job.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;

constexpr int kStepsOfARun = 25;

struct Stretch {
  int ranks;
  std::string compressor;
};

/// The books balance after these runs, each of which goes on where the one before ended.
void expect_balanced(const std::vector<Stretch>& runs) {
  const Warnings quiet;
  std::vector<std::string> saved;
  std::vector<Books> books;
  std::string text;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    text += fmt::format("{} on {}; ", runs[r].compressor, runs[r].ranks);
    ranks(runs[r].ranks, [&](Communicator& communicator) {
      Branches job{communicator, "ddp(first=64B,bucket=2KiB)+" + runs[r].compressor};
      Books mine = r == 0 ? Books(job.parameters) : books.front();  // ranks are threads
      const std::vector<std::string> before = saved;
      comm::require_same(communicator, "begin", {});
      if (r > 0) job.parallel.load_compression_state(before, "the run before");
      const int first = static_cast<int>(r) * kStepsOfARun;
      for (int step = first; step < first + kStepsOfARun; ++step)
        mine.step(job, step, event_of(step));
      const std::vector<std::string> state = job.parallel.compression_state();
      for (std::size_t p = 0; p < job.size(); ++p)
        EXPECT_LE(mine.error(job, p), bound_of(runs[0].compressor, 3, mine, p)) << text;
      if (communicator.rank() > 0) return;
      saved = state;
      books.assign(1, mine);
    });
  }
}

std::string by_exchange(std::string name, const std::string& now, const std::string& other) {
  const std::size_t at = name.find("exchange=" + now);
  return at == std::string::npos ? "" : name.replace(at, 9 + now.size(), "exchange=" + other);
}

TEST(OwedAfterResume, NothingIsLostOnAnotherNumberOfRanks) {
  for (const std::string& name : with_feedback()) {
    expect_balanced({{2, name}, {3, name}, {1, name}});
    expect_balanced({{3, name}, {2, name}, {4, name}});
  }
}

/// What owners owed goes on as their own residual, momentum in the other form.
TEST(OwedAfterResume, NothingIsLostUnderTheOtherExchange) {
  for (const std::string& name : with_feedback())
    for (const auto& [now, other] : {std::pair("gather", "two-phase"), {"two-phase", "gather"}})
      if (const std::string then = by_exchange(name, now, other); !then.empty()) {
        expect_balanced({{2, name}, {2, then}});
        expect_balanced({{3, name}, {2, then}});
      }
}

/// Of every strategy by every other, those that send tensors as they are among them.
TEST(OwedAfterResume, NothingIsLostBetweenEveryPairOfStrategies) {
  const Warnings quiet;
  for (const int n : {1, 2, 3})
    ranks(n, [](Communicator& communicator) { expect_pairs_balance(communicator); });
}

/// A scaler skips a step whose means are not finite, so it does not count.
TEST(OwedAfterResume, ResidualsStayInAStepThatOverflows) {
  const Warnings quiet;
  for (const std::string dense : {"ddp", "dear", "ddp(wire=bf16)"})
    ranks(2, [&](Communicator& communicator) {
      Branches first{communicator, "ddp+topk(density=0.1, dense_below=0)", false};
      for (int step = 0; step < 4; ++step) first.step(step, Event::ordinary);
      Branches then{communicator, dense, false};
      then.parallel.load_compression_state(first.parallel.compression_state(), "the run before");
      const at::Tensor before = owed(then, 0);
      EXPECT_GT(before.norm().item<double>(), 1);
      then.backward(4, 1, kFloatInfinity);
      then.parallel.finish();
      EXPECT_FALSE(then.parameters[0].second.grad().isfinite().all().item<bool>()) << dense;
      EXPECT_TRUE(owed(then, 0).equal(before)) << dense;
      EXPECT_TRUE(then.step(5, Event::ordinary));
      EXPECT_EQ(owed(then, 0).norm().item<double>(), 0) << dense;
      const at::Tensor sent = then.parameters[0].second.grad() - then.mean_gradient(5, 0);
      EXPECT_LE((sent - before).norm().item<double>(), 0.02 * before.norm().item<double>())
          << dense;
    });
}

/// A parameter that gets another type is no longer coded, in the run that owes to it.
TEST(OwedAfterResume, NothingIsLostWhenAParameterBecomesDense) {
  const Warnings quiet;
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kDouble})
    ranks(2, [&](Communicator& communicator) {
      Branches job{communicator, "ddp+topk(density=0.1, dense_below=0)", false};
      for (int step = 0; step < 5; ++step) job.step(step, Event::ordinary);
      const at::Tensor before = owed(job, 0);
      EXPECT_GT(before.norm().item<double>(), 1);
      at::Tensor matrix = job.parameters[0].second;
      matrix.mutable_grad().reset();
      matrix.set_data(matrix.detach().to(type));
      (matrix * 0).sum().backward();
      job.parallel.finish();
      const double rounding = type == at::kDouble ? 1e-6 : type == at::kHalf ? 0x1p-10 : 0x1p-7;
      EXPECT_LE((matrix.grad().to(at::kDouble) - before).norm().item<double>(),
                rounding * before.norm().item<double>());
      EXPECT_EQ(owed(job, 0).norm().item<double>(), 0);
    });
}

TEST(OwedAfterResume, NothingIsLostUnderOtherOptions) {
  expect_balanced(
      {{2, "dgc(density=0.1, dense_below=0)"}, {2, "dgc(density=0.05, warmup=40, dense_below=0)"}});
  expect_balanced(
      {{2, "topk(density=0.1, dense_below=0)"}, {3, "topk(density=0.02, dense_below=0)"}});
  expect_balanced({{2, "powersgd(rank=1, dense_below=0)"},
                   {2, "powersgd(rank=2, dense_below=0)"},
                   {3, "acpsgd(rank=1, dense_below=0)"}});
}

}  // namespace
}  // namespace linerate::torch_adapter
