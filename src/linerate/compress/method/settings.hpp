// The options of methods, read in one place for every implementation: the kernels here, and the
// tensor operations of torch_codecs. An option of one method is read in that method's file. Formats
// are in formats.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/factors.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

/// In threshold's payload, in place of the count: all values follow. No tensor has so many entries.
inline constexpr std::uint32_t kAllValues = 0xffffffff;
/// The exponent of threshold's rule tau <- tau (selected / k)^this. On the tail of a Gaussian one
/// step goes about the whole way to k, on heavier tails part of it. Example: k = 1,000 and 1,500
/// were selected, so tau grows by 4 %.
inline constexpr double kTauFollows = 0.1;
/// The most entries with which threshold's payload is smaller than the dense tensor with its flag.
constexpr std::int64_t threshold_most_entries(double /*density*/, std::int64_t elements) {
  return elements > 0 ? (elements - 1) / 2 : 0;
}

struct SidcoSettings {
  double density = 0.01;
  TailDistribution fit = TailDistribution::exponential;
  int stages = 0;  // 0: adjusted by their results (StageControl)
};

struct DgcSettings {
  double density = 0.01;  // of a matrix's elements
  double momentum = 0.9;
  bool nesterov = false;
  /// Scales a rank's gradient of a tensor to a norm of at most clip / sqrt(ranks).
  std::optional<double> clip = std::nullopt;
  std::int64_t warm_up = 0;  // steps
};
/// dgc's K = ceil(density n).
std::int64_t dgc_most_entries(double density, std::int64_t elements);
/// The stride of dgc's sample: it takes one of every so many elements. The sample has at least 1 %
/// of them, and at least 2 / density, so that two of it are among the largest.
std::int64_t dgc_stride(double density, std::int64_t elements);
/// If dgc's threshold lets less than four fifths of K pass, it is lowered by kDgcLowered. There are
/// at most kDgcMostPasses passes in all.
inline constexpr int kDgcMostPasses = 10;
inline constexpr float kDgcLowered = 0.8f;
constexpr bool is_enough_for_dgc(std::int64_t selected, std::int64_t target) {
  return 5 * selected >= 4 * target;
}

/// Strom's two bits an element, for -tau, 0 and tau.
struct TwoBitFormat {
  float tau;
};

/// The momentum u of means that travel dense: u <- keep u + take g, which the optimizer gets.
/// Nesterov, with a take of 1: u <- keep (u + g), and the optimizer gets u + g.
struct DenseMomentum {
  float keep = 0, take = 1;
  bool nesterov = false;
};

// The option density=0.01 of the sparse methods.

/// The share of a tensor's elements that is sent: in (0, 1], by default 0.01. Refuses others.
double read_density(doc::OptionReader& options);

// Warm-ups that methods begin with: dense steps, before a codec takes over.

/// The option `key`: a number of steps, 0 if it is absent; refuses what is below 0.
std::int64_t read_warm_up(doc::OptionReader& options, std::string_view key = "warmup");

/// One phase, "dense", of so many steps; none for 0.
std::vector<Phase> dense_warm_up(std::int64_t steps);

// Momentum as methods keep it themselves: m <- beta m + (1 - beta) x.

/// The option `key`; refuses what is not from 0 to below 1.
double read_momentum(doc::OptionReader& options, std::string_view key, double otherwise);

// The options that quantisers share.

/// bits=8, one of `allowed`. Throws UsageError.
int read_bits(doc::OptionReader& options, std::initializer_list<int> allowed, int otherwise = 8);
/// bucket=128: a power of two, 32 to 4096 elements. Throws UsageError.
std::size_t read_bucket(doc::OptionReader& options, std::int64_t otherwise);

// Helps codecs that are written over a back end, whose call has one tensor or all of a bucket.

/// A member of the codec of a call's tensor, or pointers to those of all its codecs, by tensor: the
/// back end's OfAll<Member>.
template <class Member, class Of, class Call>
decltype(auto) kept_of(const Call& tensors, Member Of::*member) {
  if constexpr (requires { tensors.codec; }) {
    return (static_cast<Of&>(*tensors.codec).*member);
  } else {
    std::vector<Member*> all;
    for (auto* const codec : tensors.codecs) all.push_back(&(static_cast<Of&>(*codec).*member));
    return all;
  }
}
/// work(kept) for what kept_of() gives.
template <class T, class Work>
void for_each_kept(Kept<T>& one, Work work) {
  work(one);
}
template <class T, class Work>
void for_each_kept(const std::vector<Kept<T>*>& all, Work work) {
  for (Kept<T>* const one : all) work(*one);
}

}  // namespace linerate::compress
