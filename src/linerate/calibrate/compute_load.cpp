// The product keeps its operands in the second-level cache, so it competes for cores. The pass over
// the stream reads and writes memory, so it competes with messages for bandwidth. Training does
// both, and a load of one kind alone would give too small or too large a slowdown.
#include "linerate/calibrate/compute_load.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"

namespace linerate::calibrate {
namespace {

constexpr std::size_t kRows = 48, kColumns = 256, kDepth = 256;  // B is 256 KiB: second-level cache
constexpr std::size_t kStream = 8u << 20;  // floats; 32 MiB, beyond any private cache
constexpr std::size_t kPass = 256u << 10;  // floats touched a slice: 1 MiB read and written

}  // namespace

int threads_per_rank(int ranks) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::max(1, cores / std::max(1, ranks));
}

EmulatedTraining::EmulatedTraining(int threads)
    : workers_(to_index(std::max(1, threads))),
      start_(std::max(1, threads)),
      end_(std::max(1, threads)) {
  for (Worker& w : workers_) {
    w.a.assign(kRows * kDepth, 0.5f), w.b.assign(kDepth * kColumns, 0.25f),
        w.c.assign(kRows * kColumns, 0.0f);
    w.stream.assign(kStream, 1.0f);
  }
  for (std::size_t i = 1; i < workers_.size(); ++i)
    threads_.emplace_back([this, i] {
      for (;;) {
        start_.arrive_and_wait();
        if (stopping_) return;
        workers_[i].run();
        end_.arrive_and_wait();
      }
    });
}

EmulatedTraining::~EmulatedTraining() {
  if (threads_.empty()) return;
  stopping_ = true;
  start_.arrive_and_wait();
  for (std::thread& t : threads_) t.join();
}

void EmulatedTraining::run_slice() {
  if (!threads_.empty()) start_.arrive_and_wait();
  workers_.front().run();
  if (!threads_.empty()) end_.arrive_and_wait();
}

void EmulatedTraining::Worker::run() {
  for (std::size_t i = 0; i < kRows; ++i)
    for (std::size_t k = 0; k < kDepth; ++k) {
      const float x = a[i * kDepth + k];
      float* out = &c[i * kColumns];
      const float* in = &b[k * kColumns];
      for (std::size_t j = 0; j < kColumns; ++j) out[j] = 0.999f * out[j] + x * in[j];
    }
  for (std::size_t i = 0; i < kPass; ++i) {
    float& v = stream[position + i];
    v = std::max(0.0f, 0.5f * v + 0.5f);
  }
  position = (position + kPass) % kStream;
}

}  // namespace linerate::calibrate
