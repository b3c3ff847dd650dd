// Training with every compressor of the registry by the code for parameters on a device, on the
// CPU: what it sends and owes is what was given. That weights and states are those of the other
// code is stream_steps_test.cpp's, but for chunks of the two-phase exchange.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/host_reads.hpp"
#include "torch_adapter/owed_job.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using compress::CompressionState;
using testing::HasSubstr;

class StreamedCompression : public testing::TestWithParam<int> {};

double difference(const at::Tensor& a, const at::Tensor& b) {
  const double size = std::max(1e-30, a.abs().max().item<double>());
  return (a - b).abs().max().item<double>() / size;
}

/// By the two-phase exchange, whose owners code chunks: the same means step by step, and what each
/// code saves is read by the other.
TEST_P_ON(StreamedCompression, SendsAndKeepsWhatTheHostsDoes, in_group, quietly<ranks>) {
  // Of the last one two and three owners have chunks of whole blocks, and one of two elements,
  // which is too small to be coded.
  const auto five = [] {
    NamedTensors all = Branches::four();
    all.emplace_back("cut", torch::zeros({34, 241}, at::kFloat));
    return all;
  };
  for (const std::string& strategy : coding_strategies()) {
    if (strategy.find("two-phase") == std::string::npos) continue;
    // Of three ranks a sum's order is the place's in its bucket, and dear cuts buckets by measured
    // times.
    const bool is_exact = communicator.size() <= 2 || !strategy.starts_with("dear");
    Branches host{communicator, strategy, true, "", five()};
    Branches device{communicator, strategy, true, kGroup, five()};
    for (int step = 0; step < 16; ++step) {
      const Event drawn = event_of(step);
      const bool is_usable = drawn != Event::not_a_number && drawn != Event::too_large;
      const Event event = is_usable ? drawn : Event::ordinary;
      const bool counts = host.step(step, event);
      ASSERT_EQ(device.step(step, event), counts) << strategy;
      for (std::size_t p = 0; p < host.size(); ++p) {
        const auto& [name, parameter] = host.parameters[p];
        const std::string title = fmt::format("{}, step {}, {}", strategy, step, name);
        const at::Tensor expected = parameter.grad(), found = device.parameters[p].second.grad();
        ASSERT_EQ(found.defined(), expected.defined()) << title;
        if (!expected.defined()) continue;
        ASSERT_LE(difference(expected, found), is_exact ? 0 : 0x1p-12) << title;
      }
      if (step % 5 != 3) continue;
      const auto of_host = host.parallel.compression_state();
      const auto of_device = device.parallel.compression_state();
      ASSERT_TRUE(!is_exact || of_device == of_host) << strategy;
      host.parallel.load_compression_state(of_device, "the device's");
      device.parallel.load_compression_state(of_host, "the host's");
    }
  }
}

/// Steps with gradients that are not usable give and send nothing: no step loses what is owed.
TEST_P_ON(StreamedCompression, LosesNothingOfTheResidual, in_group, quietly<ranks>) {
  for (const std::string& name : with_feedback()) expect_books_balance(communicator, name, kGroup);
}

TEST_P_ON(StreamedCompression, LosesNothingBetweenTwoStrategies, in_group, quietly<ranks>) {
  expect_pairs_balance(communicator, kGroup);
}

/// The arrays in a state, by parameter; of one that is not in it: zeros.
std::map<std::string, std::vector<float>> arrays_of(const CompressionState& state) {
  std::map<std::string, std::vector<float>> all;
  for (const auto& [name, tensor] : state.tensors) {
    std::vector<compress::SavedState> codecs = tensor.two_phase.workers;
    codecs.push_back(tensor.codec);
    codecs.push_back(tensor.two_phase.server);
    std::vector<float>& numbers = all[name];
    numbers = tensor.residual;
    for (const compress::SavedState& fields : codecs)
      for (const compress::SavedField& field : fields)
        if (field.is_array && !field.bytes.empty()) {
          const std::size_t known = numbers.size();
          numbers.resize(known + field.bytes.size() / sizeof(float));
          std::memcpy(&numbers[known], field.bytes.data(), field.bytes.size());
        }
  }
  return all;
}

void expect_unchanged(const CompressionState& before, const CompressionState& after,
                      const std::string& title) {
  auto stood = arrays_of(before);
  for (const auto& [name, numbers] : arrays_of(after))
    EXPECT_EQ(numbers, stood.try_emplace(name, numbers.size()).first->second)
        << title << ", " << name;
}

/// One rank's gradients are no numbers, or too large: all ranks' means are zero, residuals, momenta
/// and factors are as they were, and the next step says so.
TEST_P_ON(StreamedCompression, KeepsNothingOfAStepThatIsNotUsable, in_group, quietly<ranks>) {
  for (const std::string& strategy : coding_strategies()) {
    Branches job{communicator, strategy, false, kGroup};
    for (int step = 0; step < 10; ++step) {
      // The first step; one of a warm-up of three; one after it; of a cycle's either phase.
      const bool breaks = step == 0 || step == 2 || step == 5 || step == 8;
      const std::string title = fmt::format("{}, step {}", strategy, step);
      const auto before = job.states();
      job.backward(step, 1, !breaks ? 0 : step == 5 ? 3e38f : kFloatNaN);
      const StepReport report = job.parallel.finish();
      EXPECT_EQ(report.late_infinite, step == 1 || step == 3 || step == 6 || step == 9) << title;
      for (const auto& [name, tensor] : job.parameters) {
        if (!tensor.grad().defined()) continue;
        EXPECT_TRUE(torch::isfinite(tensor.grad()).all().item<bool>()) << title << ", " << name;
        EXPECT_TRUE(!breaks || !tensor.grad().any().item<bool>()) << title << ", " << name;
      }
      const auto after = job.states();
      for (std::size_t rank = 0; breaks && rank < after.size(); ++rank)
        expect_unchanged(before[rank], after[rank], title);
    }
  }
}

/// But for the sizes that ranks tell each other, and sidco's fits, which are copied to the host.
TEST_ON(StreamedCompressors, ReadNoValues, in_group, quietly<ranks>, 2) {
  int counted = 0;
  for (const std::string& strategy : coding_strategies()) {
    Branches job{communicator, strategy, false, kGroup};
    const HostReads reads;
    for (int step = 0; step < 6; ++step) {
      job.backward(step);
      const StepReport report = job.parallel.finish();
      const doc::Plan& plan = job.parallel.plan();
      const auto tasks = [&](doc::TaskKind kind) {
        return std::ranges::count(
            plan.variants.at(to_index(plan.variant_index(report.variant))).tasks, kind,
            &doc::Task::kind);
      };
      const std::int64_t gathers = tasks(doc::TaskKind::all_gather_v);
      const bool fit = strategy.find("sidco") != std::string::npos;
      const std::int64_t fits = fit ? tasks(doc::TaskKind::encode) : 0;
      EXPECT_EQ(report.host_waits, gathers + fits) << strategy << ", " << report.variant;
      counted += gathers > 0;
    }
    EXPECT_EQ(HostReads::count(), 0) << strategy;
  }
  EXPECT_GT(counted, 0);
}

TEST(StreamedCompressors, AnExceptionThatPassesEndsTheOthersStep) {
  const Warnings quiet;
  for (const std::string compressor :
       {"", "+fp16", "+powersgd(rank=1, dense_below=0)", "+threshold(dense_below=0)",
        "+topk(density=0.1, exchange=two-phase, dense_below=0)"})
    in_group(ranks, 2, [&](Communicator& communicator) {
      const auto three_steps = [&] {  // the first one exchanges after backward
        Branches job{communicator, "wfbp" + compressor, false, kGroup};
        for (int step = 0; step < 3; ++step) {
          job.backward(step);
          if (step == 2 && communicator.rank() == 1) throw InputError("its file is damaged");
          job.parallel.finish();
        }
      };
      if (communicator.rank() == 1)
        EXPECT_THROW(three_steps(), InputError) << compressor;
      else
        EXPECT_THROW(three_steps(), CommError) << compressor;
    });
}

/// A payload that none of these methods sends: a size, or the place of an element, that is none.
/// The rank that was sent it says so in a later step, and ends the job for the others.
TEST(StreamedCompressors, SayThatAPayloadWasDamaged) {
  const Warnings quiet;
  for (const std::string compressor :
       {"threshold(tau=0.5, dense_below=0)", "topk(density=0.1, exchange=gather, dense_below=0)",
        "topk(density=0.1, exchange=two-phase, dense_below=0)",
        "efsignsgd(exchange=two-phase, dense_below=0)", "dgc(density=0.1, dense_below=0)",
        "mstopk(density=0.1, dense_below=0)"})
    ranks(2, [&](Communicator& communicator) {
      bool damages = false;
      const GroupOverCommunicator group(kGroup, communicator,
                                        {.damage = [&](const at::Tensor& arrived) {
                                          if (damages && arrived.scalar_type() == at::kByte)
                                            arrived.fill_(0xff);
                                        }});
      Branches job{communicator, "ddp(first=64B,bucket=2KiB)+" + compressor, false, kGroup};
      const auto steps = [&](int first, int end) {
        for (int step = first; step < end; ++step) {
          job.backward(step);
          job.parallel.finish();
        }
      };
      steps(0, 2);
      damages = communicator.rank() == 1;
      steps(2, 3);
      damages = false;
      if (communicator.rank() == 0) {
        EXPECT_THROW(steps(3, 6), CommError) << compressor;
        return;
      }
      EXPECT_THAT(thrown_by<CommError>([&] { steps(3, 6); }),
                  HasSubstr("what was exchanged in an earlier step is damaged"))
          << compressor;
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, StreamedCompression, testing::Values(1, 2, 3));

}  // namespace
}  // namespace linerate::torch_adapter
