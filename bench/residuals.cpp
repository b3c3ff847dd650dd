// bench/residuals [strategy ...]: what error feedback keeps, over 10^4 steps on four ranks whose
// gradients differ. Prints the residual's norm (mean of the ranks) and the pending update's, the
// norm of the ranks' mean residual, by two rules:
//   local: e_i = v_i - (what this rank's own payload decodes to), as codecs do;
//   mean:  e_i = v_i - (the mean that all ranks got), as in PyTorch's PowerSGD hook; made here,
//          around the codec.
// Nothing is timed: the numbers are the same on every machine. The local rule's run is checked
// before it is printed: gradients given = means sent + what is still kept.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>
#include <vector>

#include "figures.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"

namespace {

using namespace linerate;
using namespace linerate::compress;

constexpr Shape kShape{1024, 32};
constexpr std::size_t kElements = 1024;
constexpr std::size_t kRanks = 4;
constexpr std::array<std::int64_t, 4> kShown = {10, 100, 1000, 10000};
using Tensor = std::vector<float>;

float normal(std::uint64_t key, std::uint64_t i) {
  const double radius = std::sqrt(-2 * std::log(1 - random_unit(key, 2 * i)));
  return static_cast<float>(radius * std::cos(2 * std::numbers::pi * random_unit(key, 2 * i + 1)));
}

/// A signal of size 0.1 that is each rank's own, and noise of size 1 that is each step's.
void fill_gradient(std::size_t rank, std::int64_t step, Tensor& gradient) {
  const std::uint64_t signal = random_key(1, rank),
                      noise = random_key(random_key(2, static_cast<std::uint64_t>(step)), rank);
  for (std::size_t i = 0; i < kElements; ++i)
    gradient[i] = 0.1f * normal(signal, i) + normal(noise, i);
}

double norm(const Tensor& v) {
  double squares = 0;
  for (const float x : v) squares += double{x} * x;
  return std::sqrt(squares);
}

enum class Rule : std::uint8_t { local, mean };

class Run {
 public:
  Run(const Compressor& compressor, Rule rule) : compressor_(compressor), rule_(rule) {
    for (std::size_t r = 0; r < kRanks; ++r) {
      codecs_.push_back(compressor.codec(kShape));
      residuals_.emplace_back(kElements);
      gradients_.emplace_back(kElements);
      before_.emplace_back(kElements);
    }
  }

  void step(std::int64_t step) {
    for (std::size_t r = 0; r < kRanks; ++r) fill_gradient(r, step, gradients_[r]);
    before_ = residuals_;
    exchange(step);
    for (std::size_t r = 0; r < kRanks; ++r)
      for (std::size_t i = 0; i < kElements; ++i) {
        balance_[i] += double{gradients_[r][i]} / kRanks;
        if (rule_ == Rule::mean) residuals_[r][i] = before_[r][i] + gradients_[r][i] - mean_[i];
      }
    for (std::size_t i = 0; i < kElements; ++i) balance_[i] -= mean_[i];
  }

  double residual_norm() const {
    double sum = 0;
    for (const Tensor& residual : residuals_) sum += norm(residual) / kRanks;
    return sum;
  }
  Tensor pending() const {
    Tensor mean(kElements);
    for (const Tensor& residual : residuals_)
      for (std::size_t i = 0; i < kElements; ++i) mean[i] += residual[i] / float{kRanks};
    return mean;
  }
  /// The largest difference between what is owed and what is kept.
  double imbalance() const {
    const Tensor kept = pending();
    double most = 0;
    for (std::size_t i = 0; i < kElements; ++i)
      most = std::max(most, std::abs(balance_[i] - kept[i]));
    return most;
  }

 private:
  using Payload = std::vector<std::byte>;

  void exchange(std::int64_t step) {
    const int phase = compressor_.phases().of_step(step);
    const std::vector<Round> rounds = compressor_.rounds(kShape, phase);
    const std::uint64_t shared = random_key(3, static_cast<std::uint64_t>(step));
    for (std::size_t round = 0; round < rounds.size(); ++round) {
      std::vector<Payload> payloads;
      for (std::size_t r = 0; r < kRanks; ++r) {
        Payload& payload = payloads.emplace_back(static_cast<std::size_t>(rounds[round].bytes));
        const Input input{
            gradients_[r], residuals_[r], {shared, random_key(shared, r + 1)}, kRanks, phase};
        payload.resize(codecs_[r]->encode(static_cast<int>(round), input, payload));
      }
      if (rounds[round].combine == Combine::sum) payloads = {summed(payloads)};
      const bool is_last = round + 1 == rounds.size();
      const std::vector<std::span<const std::byte>> arrived(payloads.begin(), payloads.end());
      for (auto& codec : codecs_)
        codec->decode(static_cast<int>(round), {arrived, kRanks},
                      is_last ? std::span<float>(mean_) : std::span<float>());
    }
    for (auto& codec : codecs_) codec->keep();
  }

  static Payload summed(const std::vector<Payload>& payloads) {
    Tensor sum(payloads[0].size() / 4), one(sum.size());
    for (const Payload& payload : payloads) {
      std::memcpy(one.data(), payload.data(), payload.size());
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
    }
    Payload bytes(payloads[0].size());
    std::memcpy(bytes.data(), sum.data(), bytes.size());
    return bytes;
  }

  const Compressor& compressor_;
  Rule rule_;
  std::vector<std::unique_ptr<Codec>> codecs_;
  std::vector<Tensor> gradients_, residuals_, before_;
  Tensor mean_ = Tensor(kElements);
  std::vector<double> balance_ = std::vector<double>(kElements);
};

void run(const std::string& strategy, Rule rule) {
  const auto compressor = make_compressor(doc::parse_component(strategy));
  if (compressor->residual() != Residual::needed && compressor->residual() != Residual::optional)
    throw UsageError(fmt::format("{} keeps no residual", strategy));
  for (const Round& round : compressor->rounds(kShape))
    if (round.combine == Combine::sum && round.dtype != DType::f32)
      throw UsageError(fmt::format("{}: only sums of f32 are made here", strategy));
  Run ranks(*compressor, rule);
  std::string line = fmt::format("{:<22} {:<6}", strategy, rule == Rule::local ? "local" : "mean");
  std::int64_t step = 0;
  for (const std::int64_t shown : kShown) {
    while (step < shown) ranks.step(step++);
    line += fmt::format(" {:9.1f}", ranks.residual_norm());
  }
  // 10^4 steps, some ten roundings each, of numbers below 100.
  if (rule == Rule::local && !(ranks.imbalance() < 1e5 * 0x1p-24 * 100))
    throw InternalError(fmt::format("bench/residuals: {} lost {}", strategy, ranks.imbalance()));
  fmt::print("{} {:9.1f}\n", line, norm(ranks.pending()));
}

const std::vector<std::string> kStrategies = {"topk(density=0.1)",   "sidco(density=0.1)",
                                              "mstopk(density=0.1)", "randomk(density=0.1)",
                                              "efsignsgd",           "onebit",
                                              "powersgd(rank=2)",    "acpsgd(rank=2)"};

}  // namespace

int main(int argc, char** argv) {
  return linerate::bench::exit_status([&] {
    const std::vector<std::string> named(argv + 1, argv + argc);
    fmt::print("{:<22} {:<6} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "strategy", "rule", "step 10", "100",
               "1000", "10000", "pending");
    for (const std::string& strategy : named.empty() ? kStrategies : named)
      for (const Rule rule : {Rule::local, Rule::mean}) run(strategy, rule);
  });
}
