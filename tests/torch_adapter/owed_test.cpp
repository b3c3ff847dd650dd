// What compressors owe to parameters: sent + owed = given, whichever ranks use a parameter in a
// step, and for one that nobody uses nothing changes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "linerate/compress/compression_state.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/rng.hpp"
#include "linerate/plan/compression.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/registered_compressors.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;

constexpr int kRandomSteps = 60;

/// What happens in a step.
enum class Event {
  ordinary,
  sent_again,    // a gradient changes after it was sent: the step is exchanged twice
  skipped,       // by all ranks
  not_a_number,  // on one rank
  too_large,     // on one rank
};

/// Of a step alone, the same on all ranks.
Event event_of(int step) {
  const double at = random_unit(random_key(7, static_cast<std::uint64_t>(step)), 0);
  constexpr std::array kEvents = {Event::sent_again, Event::skipped, Event::not_a_number,
                                  Event::too_large};
  const auto which = static_cast<std::size_t>(at * 10);
  return which < kEvents.size() ? kEvents[which] : Event::ordinary;
}
/// Gradients become a million times as large or as small, and what they were again.
double scale_of(int step) { return std::array{1.0, 1e6, 1.0, 1e-6, 1.0}[step / 12 % 5]; }

/// Three parameters, of which the two-phase exchange cuts one for two owners; a step's gradients
/// are what their sum with given factors has.
struct Branches {
  Communicator& communicator;
  std::string strategy;
  NamedTensors parameters = {{"matrix", torch::zeros({24, 20}, at::kFloat)},
                             {"wide", torch::zeros({64, 66}, at::kFloat)},
                             {"vector", torch::zeros({70}, at::kFloat)}};
  DataParallel parallel{(need_gradients(), parameters), {}, communicator, {.strategy = strategy}};

  void need_gradients() {
    for (auto& [name, tensor] : parameters) tensor.requires_grad_(true);
  }
  std::size_t size() const { return parameters.size(); }

  /// Of (step, rank, parameter) alone.
  static bool uses(int step, int rank, std::size_t parameter) {
    const std::uint64_t key = random_key(parameter, static_cast<std::uint64_t>(step));
    if (parameter > 0 && random_unit(key, 0) < 0.5) return false;  // no rank
    return parameter == 0 || random_unit(key, 1 + static_cast<std::uint64_t>(rank)) < 0.6;
  }
  at::Tensor gradient(int step, int rank, std::size_t parameter) const {
    const double seed = 100.0 * step + 10 * rank + static_cast<double>(parameter);
    return numbers(parameters[parameter].second.sizes(), seed, at::kFloat);
  }
  /// The mean of the ranks.
  at::Tensor given(int step, std::size_t parameter) const {
    at::Tensor sum = torch::zeros(parameters[parameter].second.sizes(), at::kDouble);
    for (int rank = 0; rank < communicator.size(); ++rank)
      if (uses(step, rank, parameter)) sum += gradient(step, rank, parameter);
    return sum / communicator.size();
  }
  void backward(int step) { backward(step, 1, 0); }
  /// Its gradients so many times as large, and `spoilt` added to those of the last rank.
  void backward(int step, double scale, float spoilt) {
    for (auto& [name, tensor] : parameters) tensor.mutable_grad().reset();
    const int rank = communicator.rank();
    at::Tensor loss = torch::zeros({}, at::kFloat);
    for (std::size_t p = 0; p < size(); ++p) {
      if (!uses(step, rank, p)) continue;
      at::Tensor factor = gradient(step, rank, p) * scale;
      if (rank == communicator.size() - 1) factor += spoilt;
      loss = loss + (parameters[p].second * factor).sum();
    }
    loss.backward();
  }
  /// A whole step; whether it counts.
  bool step(int number, Event event) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    const float spoilt = event == Event::not_a_number ? nan : event == Event::too_large ? 3e38f : 0;
    backward(number, scale_of(number), spoilt);
    const torch::NoGradGuard no_grad;
    if (event == Event::sent_again) parameters[0].second.mutable_grad().mul_(1);
    if (event == Event::skipped) {
      parallel.skip_step();
      return false;
    }
    return !parallel.finish().infinite;
  }
  /// Of every rank.
  std::vector<compress::CompressionState> states() {
    std::vector<compress::CompressionState> list;
    for (const std::string& text : parallel.compression_state())
      list.push_back(compress::compression_state_from(text, "state"));
    return list;
  }
};

at::Tensor numbers_of(std::span<const float> values) {
  return torch::tensor(std::vector<double>(values.begin(), values.end()), at::kDouble);
}

/// What the owner of a chunk still owes of it, in units of the mean; empty if nothing.
std::vector<float> owed_by_owner(const compress::TwoPhaseState& state) {
  std::vector<float> values;
  for (const compress::SavedField& field : state.server) {
    if (field.name != compress::kServerResidual) continue;
    values.resize(field.bytes.size() / sizeof(float));
    std::memcpy(values.data(), field.bytes.data(), field.bytes.size());
  }
  return values;
}

/// The mean of the ranks' residuals, and those of the owners.
at::Tensor owed(Branches& job, std::size_t parameter) {
  const auto& [name, tensor] = job.parameters[parameter];
  at::Tensor sum = torch::zeros({tensor.numel()}, at::kDouble);
  const std::vector<compress::CompressionState> states = job.states();
  const int ranks = job.communicator.size();
  const std::vector<compress::Chunk> chunks = compress::cut_into_chunks(tensor.numel(), ranks);
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    const auto found = states[rank].tensors.find(name);
    if (found == states[rank].tensors.end()) continue;
    if (!found->second.residual.empty()) sum += numbers_of(found->second.residual) / ranks;
    const std::vector<float> own = owed_by_owner(found->second.two_phase);
    if (!own.empty()) sum.narrow(0, chunks[rank].first, chunks[rank].elements) += numbers_of(own);
  }
  return sum.reshape(tensor.sizes());
}

/// Every method of the registry that keeps what it did not send, by every exchange that its
/// payloads can take.
std::vector<std::string> with_feedback() {
  std::vector<std::string> all = {"powersgd(rank=1, warmup=3)", "acpsgd(rank=1, warmup=3)",
                                  "onebit-adam(beta=0, exchange=gather)",
                                  "onebit-adam(beta=0, exchange=two-phase)"};
  for (const std::string& name : compress::compressors().names()) {
    const doc::Component component = doc::parse_component(small_enough(name));
    const auto compressor = compress::make_compressor(component);
    if (!compress::keeps_residual(*compressor)) continue;
    if (compressor->momentum() != compress::Momentum::optimizers) continue;
    if (!compress::fits_two_phase(*compressor)) {
      all.push_back(doc::to_text(component));
      continue;
    }
    for (const char* exchange : {"gather", "two-phase"}) {
      doc::Component by = component;
      by.options.emplace_back("exchange", exchange);
      all.push_back(doc::to_text(by));
    }
  }
  return all;
}

/// What a step may lose of what it sends: sums of f32; of halves if they travel.
double rounding(const std::string& strategy) {
  if (strategy.find("bf16") != std::string::npos) return 0x1p-8;
  return strategy.find("fp16") != std::string::npos ? 0x1p-11 : 0x1p-22;
}

class Owed : public testing::TestWithParam<int> {};

TEST_P(Owed, AndSentIsWhatWasGivenWhoeverUsesAParameter) {
  ranks(GetParam(), [](Communicator& communicator) {
    for (const std::string& name : with_feedback())
      for (const char* exchange : {"bulk+", "ddp(first=64B,bucket=2KiB)+"}) {
        Branches job{communicator, exchange + name};
        std::vector<at::Tensor> missing;
        std::vector<double> travelled(job.size());
        for (const auto& [parameter, tensor] : job.parameters)
          missing.push_back(torch::zeros(tensor.sizes(), at::kDouble));
        for (int step = 0; step < kRandomSteps; ++step) {
          job.backward(step);
          job.parallel.finish();
          for (std::size_t p = 0; p < job.size(); ++p) {
            const at::Tensor given = job.given(step, p);
            missing[p] += given;
            const at::Tensor& sent = job.parameters[p].second.grad();
            if (!sent.defined()) continue;
            missing[p] -= sent;
            travelled[p] += sent.norm().item<double>() + given.norm().item<double>();
          }
        }
        for (std::size_t p = 0; p < job.size(); ++p) {
          const double error = (missing[p] - owed(job, p)).norm().item<double>();
          EXPECT_LE(error, communicator.size() * rounding(name) * travelled[p])
              << job.strategy << ", " << job.parameters[p].first;
        }
      }
  });
}

/// Steps that no rank counts give and send nothing. Relative to the largest sum of gradients there
/// has been: what is owed was rounded when it was.
TEST_P(Owed, IsNeitherLostNorAddedToByStepsThatDoNotCountOrByChangesOfScale) {
  const Warnings quiet;
  ranks(GetParam(), [](Communicator& communicator) {
    for (const std::string& name : with_feedback()) {
      Branches job{communicator, "ddp(first=64B,bucket=2KiB)+" + name};
      std::vector<at::Tensor> given, sent;
      std::vector<double> travelled(job.size()), largest(job.size());
      for (const auto& [parameter, tensor] : job.parameters) {
        given.push_back(torch::zeros(tensor.sizes(), at::kDouble));
        sent.push_back(given.back().clone());
      }
      for (int step = 0; step < kRandomSteps; ++step) {
        const Event event = event_of(step);
        const bool counts = job.step(step, event);
        ASSERT_EQ(counts, event == Event::ordinary || event == Event::sent_again)
            << job.strategy << ", step " << step;
        if (!counts) continue;
        for (std::size_t p = 0; p < job.size(); ++p) {
          const at::Tensor mean = scale_of(step) * job.given(step, p);
          given[p] += mean;
          largest[p] = std::max(largest[p], given[p].norm().item<double>());
          if (job.parameters[p].second.grad().defined()) sent[p] += job.parameters[p].second.grad();
          travelled[p] += mean.norm().item<double>();
        }
      }
      double worst = 0;
      for (std::size_t p = 0; p < job.size(); ++p) {
        const double error = (given[p] - sent[p] - owed(job, p)).norm().item<double>();
        worst = std::max(worst, error / largest[p]);
        const bool is_half = rounding(name) > 0x1p-20;
        EXPECT_LE(error,
                  is_half ? communicator.size() * rounding(name) * travelled[p] : 1e-5 * largest[p])
            << job.strategy << ", " << job.parameters[p].first;
      }
      if (communicator.rank() == 0)
        fmt::print("{} ranks, {}: sent + owed is off by {:.1e} of what was given\n",
                   communicator.size(), name, worst);
    }
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

TEST_P(Owed, StaysAsItIsForAParameterThatNoRankUses) {
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
          bool used = false;
          for (int rank = 0; rank < communicator.size(); ++rank)
            used = used || Branches::uses(step, rank, p);
          const std::string& name = job.parameters[p].first;
          if (used || !before.contains(name)) continue;
          ++unused;
          EXPECT_EQ(after.at(name), before.at(name)) << strategy << ", " << name << ", " << step;
        }
      }
      EXPECT_GT(unused, 0) << strategy;
    }
  });
}

TEST_P(Owed, IsNotTakenFromACheckpointThatHoldsNoNumber) {
  ranks(GetParam(), [](Communicator& communicator) {
    Branches job{communicator, "bulk+topk(density=0.1)"};
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
