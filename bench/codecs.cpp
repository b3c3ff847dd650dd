// bench/codecs [strategy ...]: what compressors cost on one core. Every one of the registry, or the
// named ones, on 64 MiB of noise; decoded and compared with what was encoded before any time
// counts. Prints GB/s of input (medians) and the ratio to memcpy of the same input, measured in
// turn with it.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "figures.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/statistics.hpp"

namespace {

using namespace linerate;
using namespace linerate::compress;

constexpr std::size_t kElements = 16 << 20;
constexpr Shape kShape{kElements, 4096};  // square, for those that see a matrix
constexpr double kBytes = 4.0 * kElements;
constexpr int kRepeats = 9;

constexpr bench::Require require{"codecs"};

/// Normal, which is what the published figures are of.
std::vector<float> noise(std::uint64_t key) {
  std::vector<float> all(kElements);
  for (std::size_t i = 0; i < kElements; i += 2) {
    const double radius = std::sqrt(-2 * std::log(1 - random_unit(key, i)));
    const double angle = 2 * std::numbers::pi * random_unit(key, i + 1);
    all[i] = static_cast<float>(radius * std::cos(angle));
    all[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return all;
}

/// Touched once: page faults are no part of a codec.
struct Buffers {
  std::vector<float> gradient = noise(1), residual = noise(2), copy = noise(3), mean = noise(4);
  const std::vector<float> start = residual;  // what timed steps begin with
};

/// Median seconds of `work` and of a memcpy of the input, in turn; `before` is not timed.
struct Timed {
  double work, copy;
};
Timed timed(Buffers& b, const std::function<void()>& before, const std::function<void()>& work) {
  std::vector<double> works, copies;
  for (int i = 0; i < kRepeats; ++i) {
    copies.push_back(
        bench::seconds_of([&] { std::memcpy(b.copy.data(), b.gradient.data(), 4 * kElements); }));
    before();
    works.push_back(bench::seconds_of(work));
  }
  return {median(works), median(copies)};
}

void print(const std::string& name, const std::string& what, Timed t, const std::string& note) {
  fmt::print("{:<28} {:<16} {:7.2f} GB/s {:6.2f} x memcpy   {}\n", name, what,
             kBytes / t.work * 1e-9, t.copy / t.work, note);
}

/// One rank's step: all rounds, each payload handed back as the only one.
class OneRank {
 public:
  explicit OneRank(const std::string& strategy)
      : compressor(make_compressor(doc::parse_component(strategy))),
        rounds(compressor->rounds(kShape)),
        codec(compressor->codec(kShape)) {
    for (const Round& round : rounds) payloads.emplace_back(static_cast<std::size_t>(round.bytes));
    sizes.resize(rounds.size());
  }
  void encode(std::size_t round, const Buffers& b, std::span<float> residual) {
    sizes[round] =
        codec->encode(static_cast<int>(round), {b.gradient, residual, {1, 2}, 1}, payloads[round]);
  }
  void decode(std::size_t round, std::span<float> mean) {
    const std::span<const std::byte> one(payloads[round].data(), sizes[round]);
    const bool last = round + 1 == rounds.size();
    codec->decode(static_cast<int>(round), {std::span(&one, 1), 1}, last ? mean : mean.first(0));
    if (last) codec->keep();
  }

  std::unique_ptr<const Compressor> compressor;
  std::vector<Round> rounds;
  std::unique_ptr<Codec> codec;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<std::size_t> sizes;
};

/// sent + residual = v, to the rounding of f32 at the largest magnitude; where nothing is kept,
/// what is sent points the way of the gradient.
void check(const std::string& strategy, Buffers& b) {
  OneRank rank(strategy == "onebit-adam" ? "onebit-adam(beta=0)" : strategy);  // v: the gradient
  std::vector<float> residual(kElements);
  for (std::size_t r = 0; r < rank.rounds.size(); ++r) {
    rank.encode(r, b, keeps_residual(*rank.compressor) ? std::span(residual) : std::span<float>());
    rank.decode(r, b.mean);
  }
  if (!keeps_residual(*rank.compressor)) {
    double along = 0;
    for (std::size_t i = 0; i < kElements; ++i) along += double{b.mean[i]} * b.gradient[i];
    return require(along > 0, strategy);
  }
  for (std::size_t i = 0; i < kElements; ++i)
    require(std::abs(residual[i] + b.mean[i] - b.gradient[i]) < 1e-4,
            fmt::format("{}: element {}", strategy, i));
}

/// What error feedback begins with, apart from a codec.
Timed timed_add(Buffers& b) {
  return timed(
      b, [] {},
      [&] {
        for (std::size_t i = 0; i < kElements; ++i) b.residual[i] += b.gradient[i];
      });
}

/// One row a direction; several rounds are timed as the sum of their parts.
void run(const std::string& strategy, Buffers& b) {
  check(strategy, b);
  OneRank rank(strategy);
  const auto encode = [&](std::span<float> residual) { rank.encode(0, b, residual); };
  const auto finish = [&](std::span<float> residual) {  // leaves the codec ready for a step
    for (std::size_t r = 0; r < rank.rounds.size(); ++r) {
      if (r > 0) rank.encode(r, b, residual);
      rank.decode(r, b.mean);
    }
  };
  const bool own = rank.compressor->residual() == Residual::own;
  encode({});
  finish({});
  const std::size_t bytes = rank.sizes[0];
  const Timed plain = timed(
      b, [] {}, [&] { encode({}); });
  print(strategy, rank.rounds.size() > 1 ? "encode, round 0" : "encode", plain,
        fmt::format("{:.1f} times smaller", kBytes / static_cast<double>(bytes)));
  if (keeps_residual(*rank.compressor) && !own) {
    const Timed kept = timed(
        b, [&] { b.residual = b.start; }, [&] { encode(b.residual); });
    print(strategy, "with residual", kept,
          fmt::format("{:.2f} of encode and an add apart",
                      kept.work / (plain.work + timed_add(b).work)));
  }
  if (rank.rounds.size() == 1)
    print(strategy, "decode, 1 rank",
          timed(
              b, [] {}, [&] { rank.decode(0, b.mean); }),
          "");
  else
    print(strategy, "the rest",
          timed(
              b, [&] { encode(b.residual); }, [&] { finish(b.residual); }),
          "");
}

void run_baselines(Buffers& b) {
  print("a += b", "", timed_add(b), "");
  bool finite = true;
  print("all_finite", "",
        timed(
            b, [] {}, [&] { finite = finite && all_finite(b.gradient); }),
        "");
  require(finite, "all_finite");
}

}  // namespace

int main(int argc, char** argv) {
  return bench::exit_status([&] {
    const std::vector<std::string> named(argv + 1, argv + argc);
    Buffers b;
    run_baselines(b);
    for (const std::string& strategy : named.empty() ? compressors().names() : named)
      run(strategy, b);
  });
}
