// bench/all_finite: whether a tensor holds an infinity or a NaN, as K-FAC asks of every factor and
// inverse, next to a plain loop with one sum. Its answers are checked before anything is timed.
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>

#include "linerate/core/clock.hpp"
#include "linerate/kfac/factor_inverse.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr std::array<std::int64_t, 4> kBytes = {1 << 12, 1 << 16, 1 << 20, 1 << 26};

template <typename T>
bool serial_finite(const at::Tensor& tensor) {
  const T* const x = tensor.const_data_ptr<T>();
  T sum = 0;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) sum += x[i] - x[i];
  return sum == 0;
}

/// One bad element anywhere is seen.
template <typename T>
void check(at::Tensor values) {
  T* const x = values.mutable_data_ptr<T>();
  const std::int64_t n = values.numel();
  bool right = all_finite(values);
  for (const std::int64_t at : {std::int64_t{0}, n / 3, n - 1})
    for (const T bad : {std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN()}) {
      const T good = std::exchange(x[at], bad);
      right = right && !all_finite(values) && !serial_finite<T>(values);
      x[at] = good;
    }
  if (right) return;
  fmt::print(stderr, "all_finite: a wrong answer among {} elements\n", n);
  std::exit(70);
}

/// The least of some runs, by call.
template <typename Work>
double least_ns(std::int64_t bytes, Work&& work) {
  const std::int64_t calls = std::max<std::int64_t>(1, (std::int64_t{1} << 24) / bytes);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int run = 0; run < 9; ++run) {
    const std::int64_t start = steady_ns();
    for (std::int64_t k = 0; k < calls; ++k)
      if (!work()) std::exit(70);
    least = std::min(least, steady_ns() - start);
  }
  return static_cast<double>(least) / static_cast<double>(calls);
}

template <typename T>
void bench(const char* type, at::ScalarType dtype) {
  for (const std::int64_t bytes : kBytes) {
    const std::int64_t n = bytes / static_cast<std::int64_t>(sizeof(T));
    const at::Tensor values = at::rand({n}, dtype);
    check<T>(values.clone());
    const double ours = least_ns(bytes, [&] { return all_finite(values); });
    const double plain = least_ns(bytes, [&] { return serial_finite<T>(values); });
    fmt::print("{:<5}{:>10} bytes {:>12.1f} us {:>12.1f} us serial {:>8.1f} x {:>7.1f} GB/s\n",
               type, bytes, ours * 1e-3, plain * 1e-3, plain / ours,
               static_cast<double>(bytes) / ours);
  }
}

}  // namespace
}  // namespace linerate::torch_adapter

int main() {
  linerate::torch_adapter::bench<float>("f32", at::kFloat);
  linerate::torch_adapter::bench<double>("f64", at::kDouble);
}
