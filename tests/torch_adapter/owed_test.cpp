// What compressors owe to parameters: sent + owed = given, whichever ranks use a parameter in a
// step, and for one that nobody uses nothing changes.
#include <torch/optim/sgd.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/plan/compression.hpp"
#include "torch_adapter/owed_job.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;

class Owed : public testing::TestWithParam<int> {};

TEST_P(Owed, ResidualsAndSentValuesSumToTheGradients) {
  ranks(GetParam(), [](Communicator& communicator) {
    for (const std::string& name : with_feedback())
      for (const char* exchange : {"bulk+", "ddp(first=64B,bucket=2KiB)+"}) {
        Branches job{communicator, exchange + name, false};
        Books books(job.parameters);
        for (int step = 0; step < kRandomSteps; ++step) books.step(job, step, Event::ordinary);
        for (std::size_t p = 0; p < job.size(); ++p)
          EXPECT_LE(books.error(job, p), communicator.size() * rounding(name) * books.travelled[p])
              << job.strategy << ", " << job.parameters[p].first;
      }
  });
}

/// Steps that no rank counts give and send nothing.
TEST_P(Owed, SkippedStepsAndLossScalesLoseNothing) {
  const Warnings quiet;
  ranks(GetParam(), [](Communicator& communicator) {
    for (const std::string& name : with_feedback()) expect_books_balance(communicator, name);
  });
}

/// By parameter name: what all ranks keep for it.
std::map<std::string, std::string> kept(Branches& job) {
  std::map<std::string, std::string> all;
  for (const compress::CompressionState& state : job.states())
    for (const auto& [name, tensor] : state.tensors)
      all[name] += compress::to_bytes({.step = 0, .tensors = {{name, tensor}}});
  return all;
}

TEST_P(Owed, ResidualsOfAnUnusedParameterStay) {
  ranks(GetParam(), [](Communicator& communicator) {
    std::vector<std::string> strategies;
    for (const std::string& name : registered_compressors()) {
      strategies.push_back("ddp(first=64B,bucket=2KiB)+" + name);
      const doc::Component plain = plan::compressors_in(doc::parse_component(name)).front();
      if (plan::fits_decoupled(plain)) strategies.push_back("dear+" + name);
    }
    for (const std::string& strategy : strategies) {
      Branches job{communicator, strategy};
      torch::optim::SGD optimizer{
          {job.parameters[0].second, job.parameters[1].second, job.parameters[2].second},
          torch::optim::SGDOptions(1e-3)};
      int unused = 0;
      for (int step = 0; step < 12; ++step) {
        const auto before = kept(job);
        job.backward(step);
        job.parallel.step(optimizer);
        const auto after = kept(job);
        for (std::size_t p = 0; p < job.size(); ++p) {
          const std::string& name = job.parameters[p].first;
          if (job.any_uses(step, p) || !before.contains(name)) continue;
          ++unused;
          EXPECT_EQ(after.at(name), before.at(name)) << strategy << ", " << name << ", " << step;
        }
      }
      EXPECT_GT(unused, 0) << strategy;
    }
  });
}

TEST_P(Owed, ResidualsThatAreNotFiniteAreNotLoaded) {
  ranks(GetParam(), [](Communicator& communicator) {
    Branches job{communicator, "bulk+topk(density=0.1, dense_below=0)"};
    for (int step = 0; step < 3; ++step) job.step(step, Event::ordinary);
    std::vector<compress::CompressionState> states = job.states();
    const auto load = [&] {
      std::vector<std::string> texts;
      for (const compress::CompressionState& state : states)
        texts.push_back(compress::to_bytes(state));
      job.parallel.load_compression_state(texts, "checkpoint 7");
    };
    EXPECT_NO_THROW(load());
    for (const float wrong : {std::numeric_limits<float>::quiet_NaN(),
                              -std::numeric_limits<float>::infinity(), 1e30f}) {
      states.back().tensors.at("wide").residual[3] = wrong;
      EXPECT_THAT(load, testing::ThrowsMessage<InputError>(testing::AllOf(
                            testing::HasSubstr("checkpoint 7"), testing::HasSubstr("\"wide\""),
                            testing::HasSubstr("resume an earlier checkpoint"))))
          << wrong;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Owed, testing::Values(1, 2, 3));

}  // namespace
}  // namespace linerate::torch_adapter
