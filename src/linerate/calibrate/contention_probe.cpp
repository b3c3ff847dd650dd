// Each round compares things that run right after each other. So a slow moment of the machine
// spoils one round, and not the comparison. Medians over rounds drop such rounds. All ranks meet
// before each part, because a rank that computes while another one rests would measure something
// else.
#include "linerate/calibrate/contention_probe.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <stop_token>

#include "linerate/compress/cast.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

constexpr int kIdleTrials = 20;
constexpr std::int64_t kSilence_ns = 20'000'000;
constexpr int kMostRounds = 200;
constexpr auto kRest = std::chrono::milliseconds(1);
constexpr std::size_t kCodedElements = 1 << 20;  // a bucket of 4 MiB

double seconds_since(std::int64_t begin_ns) {
  return static_cast<double>(steady_ns() - begin_ns) * 1e-9;
}

/// Of all threads of this process, so far.
double processor_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// What a codec's lane does: it reads and writes a few megabytes over and over.
void code(const std::stop_token& stop) {
  std::vector<float> from(kCodedElements, 1.0f);
  std::vector<std::byte> to(2 * kCodedElements);
  while (!stop.stop_requested())
    compress::cast(from.data(), DType::f32, to.data(), DType::f16, from.size());
}

/// One probe. All ranks run the same rounds: whether another one begins depends on the longest
/// elapsed time of any rank (agreed_max).
class ContentionProber {
 public:
  ContentionProber(comm::Communicator& communicator, ComputeLoad& load,
                   const ContentionProbeOptions& options)
      : communicator_(communicator), load_(load), options_(options) {
    std::int64_t most = kMessage.value;
    for (const Bytes b : options.exchange) most = std::max(most, b.value);
    buffer_.assign(to_index(most / 4), 0.0f);
  }

  doc::Contention run() {
    const std::int64_t start = steady_ns();
    shorten_exchange();
    const std::vector<Bytes> messages(to_index(options_.messages), kMessage);
    std::vector<double> compute, communication, coded, taken, delays;
    for (int round = 0; round < kMostRounds; ++round) {
      const double elapsed = agreed_max(seconds_since(start));
      if (options_.progress) options_.progress(std::min(1.0, elapsed / options_.budget.count()));
      if (round >= options_.fewest_rounds && elapsed >= options_.budget.count()) break;
      const double exchange_alone = exchange(options_.exchange, false).seconds;
      const double rate_alone = slices_per_second(exchange_alone);
      const Together both = exchange(options_.exchange, true);
      compute.push_back(rate_alone / both.slices_per_second);
      communication.push_back(exchange_alone > 0 ? both.seconds / exchange_alone : 1);
      {
        const std::jthread coding(code);
        coded.push_back(rate_alone / slices_per_second(exchange_alone));
      }
      taken.push_back(message_s());
      delays.push_back((exchange(messages, true).seconds - exchange(messages, false).seconds) /
                       options_.messages);
    }
    std::vector<double> mean = {median(compute), median(communication), median(coded),
                                median(taken), median(delays)};
    mean_over_ranks(communicator_, mean);
    return {std::max(1.0, mean[0]), std::max(1.0, mean[1]), std::max(1.0, mean[2]),
            std::max(0.0, mean[3]), std::max(0.0, mean[4])};
  }

 private:
  struct Together {
    double seconds;            // of the exchange, first message to last result
    double slices_per_second;  // meanwhile; 0 if nothing is computed
  };

  /// What a message takes of this rank's processors: their time over one less that over as long a
  /// rest. Time on the clock would not tell: who else runs on the machine is in it.
  double message_s() {
    std::vector<double> resting, sending;
    for (int m = 0; m < options_.messages; ++m) {
      double begin = processor_s();
      std::this_thread::sleep_for(kRest);
      resting.push_back(processor_s() - begin);
      begin = processor_s();
      const comm::WorkPtr work = communicator_.all_reduce(
          {buffer_.data(), {kMessage.value / 4}, DType::f32}, comm::Reduce::sum, "calibrate");
      std::this_thread::sleep_for(kRest);
      work->wait();
      sending.push_back(processor_s() - begin);
    }
    return median(sending) - median(resting);
  }

  double agreed_max(double value) {
    communicator_.all_reduce(comm::buffer(value), comm::Reduce::max, "agree")->wait();
    return value;
  }

  /// All-reduces back to back, with or without computation on every rank until they are through.
  Together exchange(const std::vector<Bytes>& sizes, bool computing) {
    communicator_.barrier("calibrate")->wait();
    std::vector<comm::WorkPtr> works;
    for (const Bytes b : sizes)
      works.push_back(communicator_.all_reduce({buffer_.data(), {b.value / 4}, DType::f32},
                                               comm::Reduce::sum, "calibrate"));
    const std::int64_t start = steady_ns();
    double slices = 0;
    // At least one slice, as the exchange may be through before it.
    while (computing && (slices == 0 || !works.back()->done())) load_.run_slice(), slices += 1;
    const double computing_s = seconds_since(start);
    for (const comm::WorkPtr& w : works) w->wait();
    const double seconds =
        static_cast<double>(works.back()->times().end_ns - works.front()->times().start_ns) * 1e-9;
    return {seconds, slices / computing_s};
  }

  /// All ranks compute for about as long as the exchange takes, at least 20 ms.
  double slices_per_second(double at_least_s) {
    communicator_.barrier("calibrate")->wait();
    const std::int64_t start = steady_ns();
    const double enough = std::max(0.020, at_least_s);
    double slices = 0, elapsed = 0;
    do {
      load_.run_slice();
      slices += 1;
      elapsed = seconds_since(start);
    } while (elapsed < enough);
    return slices / elapsed;
  }

  /// On a slow network the whole exchange would eat the budget: its largest parts go until a round
  /// fits.
  void shorten_exchange() {
    load_.run_slice();
    while (options_.exchange.size() > 1 &&
           agreed_max(exchange(options_.exchange, false).seconds) * 4 * options_.fewest_rounds >
               options_.budget.count())
      options_.exchange.pop_back();
  }

  comm::Communicator& communicator_;
  ComputeLoad& load_;
  ContentionProbeOptions options_;
  std::vector<float> buffer_;
};

// The product keeps its operands in the second-level cache, so it competes for cores. The pass over
// the stream reads and writes memory, so it competes with messages for bandwidth. Training does
// both, and a load of one kind alone would give too small or too large a slowdown.

constexpr std::size_t kRows = 48, kColumns = 256, kDepth = 256;  // B is 256 KiB: second-level cache
constexpr std::size_t kStream = 8u << 20;  // floats; 32 MiB, beyond any private cache
constexpr std::size_t kPass = 256u << 10;  // floats touched a slice: 1 MiB read and written

}  // namespace

doc::Contention probe_contention(comm::Communicator& communicator, ComputeLoad& load,
                                 const ContentionProbeOptions& options) {
  return ContentionProber(communicator, load, options).run();
}

// Each rank counts from the moment at which it should have come. So a rank that wakes late delays
// the others here as it does in a step.
IdleStart probe_idle_start(comm::Communicator& communicator) {
  std::vector<float> message(to_index(kMessage.value / 4), 0.0f);
  std::vector<double> calls;
  double longest_sleep_s = 0;
  for (int i = 0; i < kIdleTrials; ++i) {
    communicator.barrier("calibrate")->wait();
    const std::int64_t due = steady_ns() + kSilence_ns;
    sleep_until_ns(due);
    const std::int64_t submitted = steady_ns();
    const comm::WorkPtr work =
        communicator.all_reduce(comm::buffer(message), comm::Reduce::sum, "calibrate");
    work->wait();
    calls.push_back(seconds_since(due));
    longest_sleep_s =
        std::max(longest_sleep_s, static_cast<double>(work->times().start_ns - submitted) * 1e-9);
  }
  mean_over_ranks(communicator, calls);
  communicator.all_reduce(comm::buffer(longest_sleep_s), comm::Reduce::max, "calibrate")->wait();
  return {longest_sleep_s, median(calls)};
}

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
