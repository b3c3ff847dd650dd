// What every back end must do: one list of cases, run on ranks as threads and on ranks under
// mpirun. A case is called on every rank at once and expects on each.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/reduce_kernel.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"
#include "support/scalar_arithmetic.hpp"

namespace linerate::comm::suite {

/// A case is called on every rank of a run of its own.
struct Case {
  const char* name;
  void (*run)(Communicator&);
  Duration timeout{60};
  bool checked = true;
  std::optional<BytesPerSecond> link = {};
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
/// Defines a case of `comm`, the communicator of its ranks, and lists it.
#define LISTED_CASE(list, name, ...)                                      \
  inline void name(Communicator& comm);                                   \
  inline const bool name##_is_listed =                                    \
      (list().push_back({#name, name __VA_OPT__(, ) __VA_ARGS__}), true); \
  inline void name(Communicator& comm)

inline constexpr std::array kTypes = {DType::f32, DType::f64, DType::f16, DType::bf16,
                                      DType::i32, DType::i64, DType::u8};

/// visit(T{}, a number of an element, an element of a number), T that of the elements.
template <typename Visit>
auto visit_type(DType dtype, const Visit& visit) {
  const auto plain = [&](auto zero) {
    return visit(
        zero, [](auto x) { return static_cast<double>(x); },
        [](double x) { return static_cast<decltype(zero)>(x); });
  };
  const auto half = [&](auto widen, auto narrow) {
    return visit(
        std::uint16_t{}, [=](auto x) { return double{widen(x)}; },
        [=](double x) { return narrow(static_cast<float>(x)); });
  };
  if (dtype == DType::f16) return half(float_of_f16, f16_of_float);
  if (dtype == DType::bf16) return half(float_of_bf16, bf16_of_float);
  if (dtype == DType::f32) return plain(float{});
  if (dtype == DType::f64) return plain(double{});
  if (dtype == DType::i32) return plain(std::int32_t{});
  if (dtype == DType::i64) return plain(std::int64_t{});
  return plain(std::uint8_t{});
}

/// Element i of an array.
inline double element_of(const void* array, DType dtype, std::int64_t i) {
  return visit_type(dtype, [&](auto zero, auto widen, auto) {
    return widen(static_cast<const decltype(zero)*>(array)[i]);
  });
}

/// Elements of any type, read and written as doubles.
class Array {
 public:
  Array(DType dtype, std::int64_t count)
      : dtype_(dtype),
        count_(count),
        bytes_(static_cast<std::size_t>(count * size_of(dtype)) + 8) {}

  void set(std::int64_t i, double value) {
    visit_type(dtype_, [&](auto zero, auto, auto narrow) {
      reinterpret_cast<decltype(zero)*>(bytes_.data())[i] = narrow(value);
    });
  }
  double get(std::int64_t i) const { return element_of(bytes_.data(), dtype_, i); }
  Buffer buffer() { return {bytes_.data(), {count_}, dtype_}; }
  Buffer block(std::int64_t begin, std::int64_t count) {
    return {bytes_.data() + begin * size_of(dtype_), {count}, dtype_};
  }
  ConstBuffer view() const { return {bytes_.data(), {count_}, dtype_}; }
  std::int64_t count() const { return count_; }
  std::uint64_t hash() const {
    return hash_bytes({reinterpret_cast<const char*>(bytes_.data()),
                       static_cast<std::size_t>(count_ * size_of(dtype_))});
  }

 private:
  DType dtype_;
  std::int64_t count_;
  std::vector<std::byte> bytes_;
};

/// Small whole numbers, exact in every type: what rank r contributes at element i. 16 ranks sum to
/// at most 16 * 9 = 144.
inline double contribution(int rank, std::int64_t i) {
  return static_cast<double>((i + 3 * rank) % 10);
}

inline Array filled(DType dtype, std::int64_t count, int rank) {
  Array array(dtype, count);
  for (std::int64_t i = 0; i < count; ++i) array.set(i, contribution(rank, i));
  return array;
}

inline double expected(Reduce op, int ranks, std::int64_t i) {
  double result = contribution(0, i);
  for (int r = 1; r < ranks; ++r) {
    const double x = contribution(r, i);
    result = op == Reduce::sum   ? result + x
             : op == Reduce::max ? std::max(result, x)
                                 : std::min(result, x);
  }
  return result;
}

/// Index of the first wrong element, or -1: one expectation for an array, not a million.
inline std::int64_t first_difference(const Array& array,
                                     const std::function<double(std::int64_t)>& want) {
  for (std::int64_t i = 0; i < array.count(); ++i) {
    if (array.get(i) != want(i)) return i;
  }
  return -1;
}

inline std::string label(DType dtype, std::int64_t count) {
  return std::string(name_of(dtype)) + " x " + std::to_string(count);
}

// Counts: nothing, one, a prime below and one above every switch of algorithm (262'147 f32 = 1
// MiB).
inline std::vector<std::int64_t> counts_for(DType dtype) {
  if (dtype == DType::f32) return {0, 1, 7, 8191, 262'147};
  return {0, 1, 70'001};
}

/// Calls run(dtype, count) for each type and each of its counts.
template <typename Run>
void for_every_type(const Run& run) {
  for (const DType dtype : kTypes)
    for (const std::int64_t count : counts_for(dtype)) {
      SCOPED_TRACE(label(dtype, count));
      run(dtype, count);
    }
}

/// What all_reduce makes of filled() arrays.
inline void expect_reduced(const Array& array, int ranks, Reduce op = Reduce::sum) {
  EXPECT_EQ(first_difference(array, [&](auto i) { return expected(op, ranks, i); }), -1)
      << array.count();
}

inline void expect_sum(Communicator& comm, std::int64_t count, const std::string& name) {
  SCOPED_TRACE(name + ", " + std::to_string(count));
  Array x = filled(DType::f32, count, comm.rank());
  comm.all_reduce(x.buffer(), Reduce::sum, name)->wait();
  expect_reduced(x, comm.size());
}

/// What the collective fails with; "" where it does not.
inline std::string error_of(const std::function<void()>& collective) {
  try {
    collective();
  } catch (const CommError& e) {
    return e.what();
  }
  return {};
}

inline void expect_said(const std::string& said, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_THAT(said, ::testing::HasSubstr(part));
}

LISTED_CASE(cases, all_reduce_of_every_type) {
  for_every_type([&](DType dtype, std::int64_t count) {
    for (const Reduce op : {Reduce::sum, Reduce::max, Reduce::min}) {
      Array x = filled(dtype, count, comm.rank());
      comm.all_reduce(x.buffer(), op, "x")->wait();
      expect_reduced(x, comm.size(), op);
    }
  });
}

/// What a rank adds, cut where no other rank cuts: the third pieces stand in their places in the
/// array, the others elsewhere, each with a scale of its own. `written` is the same in one piece.
struct Scattered {
  Scattered(DType dtype, std::int64_t count, int rank)
      : array(dtype, count), elsewhere(dtype, count), written(dtype, count) {
    for (std::int64_t i = 0; i < count; ++i) {
      array.set(i, -1);
      elsewhere.set(i, contribution(rank, i) + 1.0 / static_cast<double>(i % 7 + 3));
    }
    const std::int64_t steps = 5 + rank;
    for (std::int64_t begin = 0, k = 0; begin < count; ++k) {
      const std::int64_t n = std::min<std::int64_t>(count - begin, k % steps * 13 + 1);
      const bool in_place = k % 3 == 2;
      const double scale = in_place ? 1 : 1.0 / static_cast<double>(rank + 2 + k % 2);
      if (in_place)
        for (std::int64_t i = begin; i < begin + n; ++i) array.set(i, elsewhere.get(i));
      Buffer from = (in_place ? array : elsewhere).block(begin, n);
      scale_into_scalar(written.block(begin, n).data, from.data, scale, static_cast<std::size_t>(n),
                        dtype);
      pieces.push_back({from, scale});
      begin += n;
    }
  }
  Array array, elsewhere, written;
  std::vector<Piece> pieces;
};

/// The same bits as the sum of what was written to one array first.
LISTED_CASE(cases, sums_of_pieces) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const std::int64_t count : {0, 1, 5, 1000, 200'003}) {
      Scattered own(dtype, count, comm.rank());
      comm.all_reduce(std::move(own.pieces), own.array.buffer(), "pieces")->wait();
      comm.all_reduce(own.written.buffer(), Reduce::sum, "written")->wait();
      ASSERT_EQ(own.array.hash(), own.written.hash()) << label(dtype, count);
    }
    for (const std::int64_t block : {1, 700, 50'001}) {
      Scattered own(dtype, block * comm.size(), comm.rank());
      comm.reduce_scatter(std::move(own.pieces), own.array.buffer(), "pieces")->wait();
      const std::int64_t begin = comm.rank() * block;
      comm.reduce_scatter(own.written.view(), own.written.block(begin, block), Reduce::sum,
                          "written")
          ->wait();
      for (std::int64_t i = begin; i < begin + block; ++i)
        ASSERT_EQ(own.array.get(i), own.written.get(i)) << label(dtype, block) << " element " << i;
    }
  }
}

LISTED_CASE(cases, bad_pieces_are_usage_errors) {
  Array x(DType::f32, 10), numbers(DType::i32, 10);
  const auto of = [](Array& array, std::int64_t count) {
    return std::vector<Piece>{{array.block(0, count), 0.5}};
  };
  EXPECT_THROW(static_cast<void>(comm.all_reduce(of(x, 9), x.buffer(), "short")), UsageError);
  EXPECT_THROW(
      static_cast<void>(comm.all_reduce({{{nullptr, {10}, DType::f32}, 1}}, x.buffer(), "null")),
      UsageError);
  EXPECT_THROW(static_cast<void>(comm.all_reduce(of(numbers, 10), numbers.buffer(), "type")),
               UsageError);
  EXPECT_THAT([&] { static_cast<void>(comm.all_reduce(of(numbers, 10), x.buffer(), "other")); },
              ::testing::ThrowsMessage<UsageError>(
                  ::testing::HasSubstr("pieces of the array's type f32, found i32")));
  if (comm.size() > 1) {
    EXPECT_THROW(static_cast<void>(comm.reduce_scatter(of(x, 1), x.block(0, 1), "blocks")),
                 UsageError);
  }
}

LISTED_CASE(cases, reduce_scatter_of_every_type) {
  for_every_type([&](DType dtype, std::int64_t count) {
    const Array input = filled(dtype, comm.size() * count, comm.rank());
    Array output(dtype, count);
    comm.reduce_scatter(input.view(), output.buffer(), Reduce::sum, "x")->wait();
    const auto want = [&](std::int64_t i) {
      return expected(Reduce::sum, comm.size(), comm.rank() * count + i);
    };
    EXPECT_EQ(first_difference(output, want), -1);
  });
}

LISTED_CASE(cases, reduce_scatter_in_place) {
  for (const std::int64_t count : {std::int64_t{7}, std::int64_t{300'007}}) {
    Array x = filled(DType::f32, comm.size() * count, comm.rank());
    const Buffer own = x.block(comm.rank() * count, count);
    comm.reduce_scatter(x.view(), own, Reduce::sum, "x")->wait();
    for (std::int64_t i = comm.rank() * count; i < (comm.rank() + 1) * count; ++i) {
      ASSERT_EQ(x.get(i), expected(Reduce::sum, comm.size(), i));
    }
  }
}

/// Element i of rank r's piece, as everybody sees it after a gather.
inline void expect_gathered(const Array& output, std::span<const std::int64_t> counts) {
  std::int64_t at = 0, wrong = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    for (std::int64_t i = 0; i < counts[r]; ++i) {
      wrong += output.get(at++) != contribution(static_cast<int>(r), i);
    }
  }
  EXPECT_EQ(wrong, 0) << "of " << at;
}

LISTED_CASE(cases, all_gather_of_every_type) {
  for_every_type([&](DType dtype, std::int64_t count) {
    const Array input = filled(dtype, count, comm.rank());
    Array output(dtype, comm.size() * count);
    comm.all_gather(input.view(), output.buffer(), "x")->wait();
    expect_gathered(output,
                    std::vector<std::int64_t>(static_cast<std::size_t>(comm.size()), count));
  });
}

LISTED_CASE(cases, all_gather_in_place) {
  constexpr std::int64_t kCount = 300'007;
  Array x(DType::f32, comm.size() * kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    x.set(comm.rank() * kCount + i, contribution(comm.rank(), i));
  }
  const Buffer own = x.block(comm.rank() * kCount, kCount);
  comm.all_gather(own, x.buffer(), "x")->wait();
  expect_gathered(x, std::vector<std::int64_t>(static_cast<std::size_t>(comm.size()), kCount));
}

/// Uneven pieces: rank 1 gives nothing, the others from a few elements to many chunks.
LISTED_CASE(cases, all_gather_v_of_uneven_pieces) {
  for (const std::int64_t unit : {std::int64_t{5}, std::int64_t{200'003}}) {
    std::vector<std::int64_t> counts;
    for (int r = 0; r < comm.size(); ++r) counts.push_back(r == 1 ? 0 : unit * (r + 1) + r);
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const Array input =
        filled(DType::f32, counts[static_cast<std::size_t>(comm.rank())], comm.rank());
    Array output(DType::f32, total);
    comm.all_gather_v(input.view(), output.buffer(), counts, "x")->wait();
    expect_gathered(output, counts);
  }
}

LISTED_CASE(cases, all_to_all_of_every_type) {
  for_every_type([&](DType dtype, std::int64_t count) {
    const std::int64_t size = comm.size();
    Array input(dtype, size * count), output(dtype, size * count);
    // Rank r tells rank t the numbers of contribution(10 r + t).
    for (std::int64_t i = 0; i < size * count; ++i)
      input.set(i, contribution(static_cast<int>(10 * comm.rank() + i / count), i % count));
    comm.all_to_all(input.view(), output.buffer(), "x")->wait();
    const auto want = [&](std::int64_t i) {
      return contribution(static_cast<int>(10 * (i / count) + comm.rank()), i % count);
    };
    EXPECT_EQ(first_difference(output, want), -1);
  });
}

LISTED_CASE(cases, broadcast_from_every_root) {
  for_every_type([&](DType dtype, std::int64_t count) {
    for (int root = 0; root < comm.size(); ++root) {
      Array x = filled(dtype, count, comm.rank());
      comm.broadcast(x.buffer(), root, "x")->wait();
      EXPECT_EQ(first_difference(x, [&](auto i) { return contribution(root, i); }), -1)
          << "from " << root;
    }
  });
}

/// Nobody is through a barrier before the last has come: the latest arrival is no later than the
/// earliest end. All ranks of these tests share one steady clock.
LISTED_CASE(cases, barrier_waits_for_the_last) {
  std::this_thread::sleep_for(std::chrono::milliseconds(10 * comm.rank()));
  const auto arrival = std::chrono::steady_clock::now().time_since_epoch().count();
  const WorkPtr work = comm.barrier("gate");
  work->wait();
  std::int64_t last_arrival = arrival, first_end = work->times().end_ns;
  comm.all_reduce(buffer(last_arrival), Reduce::max, "arrival")->wait();
  comm.all_reduce(buffer(first_end), Reduce::min, "end")->wait();
  EXPECT_LE(last_arrival, first_end);
}

/// Twenty collectives of mixed kinds and sizes under way at once, waited for from the last to the
/// first.
LISTED_CASE(cases, several_in_flight) {
  std::vector<Array> arrays;
  std::vector<WorkPtr> works;
  for (int k = 0; k < 20; ++k)
    arrays.push_back(filled(DType::f32, (k * k * k * 37) % 100'003, comm.rank()));
  for (int k = 0; k < 20; ++k) {
    Array& x = arrays[static_cast<std::size_t>(k)];
    const std::string name = "x" + std::to_string(k);
    works.push_back(k % 5 == 4 ? comm.broadcast(x.buffer(), k % comm.size(), name)
                               : comm.all_reduce(x.buffer(), Reduce::sum, name));
  }
  for (int k = 19; k >= 0; --k) {
    works[static_cast<std::size_t>(k)]->wait();
    const auto want = [&](std::int64_t i) {
      return k % 5 == 4 ? contribution(k % comm.size(), i) : expected(Reduce::sum, comm.size(), i);
    };
    EXPECT_EQ(first_difference(arrays[static_cast<std::size_t>(k)], want), -1) << k;
  }
  for (int k = 1; k < 20; ++k) {  // first in, first out
    EXPECT_LE(works[static_cast<std::size_t>(k - 1)]->times().end_ns,
              works[static_cast<std::size_t>(k)]->times().start_ns);
  }
}

inline double unit_random(int rank, std::int64_t i) {
  return 2 * random_unit(random_key(7, static_cast<std::uint64_t>(rank)),
                         static_cast<std::uint64_t>(i)) -
         1;
}

/// P - 1 additions, each rounded once: |error| <= (P-1) u sum|x|, first order; partial sums are at
/// most sum|x|. u is half the spacing at 1: 2^-24 f32, 2^-53 f64, 2^-11 f16, 2^-8 bf16. The inputs
/// are rounded first, so they count as exact; 1 % covers the second order. f16's subnormals add at
/// most 2^-25 a step.
LISTED_CASE(cases, sums_within_their_roundings) {
  const std::vector<std::pair<DType, double>> roundoff = {
      {DType::f32, 0x1p-24}, {DType::f64, 0x1p-53}, {DType::f16, 0x1p-11}, {DType::bf16, 0x1p-8}};
  for (const auto& [dtype, u] : roundoff) {
    for (const std::int64_t count : {std::int64_t{101}, std::int64_t{100'003}}) {
      std::vector<Array> all;
      for (int r = 0; r < comm.size(); ++r) {
        all.emplace_back(dtype, count);
        for (std::int64_t i = 0; i < count; ++i) all.back().set(i, unit_random(r, i));
      }
      Array x = all[static_cast<std::size_t>(comm.rank())];
      comm.all_reduce(x.buffer(), Reduce::sum, "x")->wait();
      double worst = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        long double sum = 0, magnitude = 0;
        for (const Array& a : all) sum += a.get(i), magnitude += std::abs(a.get(i));
        const double steps = comm.size() - 1;
        const double bound =
            1.01 * steps * (u * static_cast<double>(magnitude) + 0x1p-25 * (dtype == DType::f16));
        worst = std::max(worst, static_cast<double>(std::abs(x.get(i) - sum)) - bound);
      }
      EXPECT_LE(worst, 0.0) << label(dtype, count);
    }
  }
}

/// The same bits on every rank, whatever the algorithm.
LISTED_CASE(cases, results_are_bitwise_equal) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const std::int64_t count :
         {std::int64_t{101}, std::int64_t{100'003}, std::int64_t{1'000'003}}) {
      Array x(dtype, count);
      for (std::int64_t i = 0; i < count; ++i) x.set(i, unit_random(comm.rank(), i));
      comm.all_reduce(x.buffer(), Reduce::sum, "x")->wait();
      const auto own = static_cast<std::int64_t>(x.hash());
      std::int64_t low = own, high = own;
      comm.all_reduce(buffer(low), Reduce::min, "low")->wait();
      comm.all_reduce(buffer(high), Reduce::max, "high")->wait();
      EXPECT_EQ(low, high) << label(dtype, count);
    }
  }
}

/// An all-reduce sends 2 (P-1)/P S and receives as much (Patarasuk & Yuan 2009), and at most a few
/// addresses and flags; S is a multiple of P here.
LISTED_CASE(cases, all_reduce_moves_what_theory_says) {
  const std::int64_t count = 240'000 * comm.size();
  Array x(DType::f32, count);
  const Traffic before = comm.traffic();
  comm.all_reduce(x.buffer(), Reduce::sum, "x")->wait();
  const Traffic after = comm.traffic();
  const std::int64_t want = 2 * (comm.size() - 1) * 240'000 * 4;
  const std::int64_t most = want + 64 * (comm.size() - 1);
  for (const Bytes moved : {after.sent - before.sent, after.received - before.received}) {
    EXPECT_GE(moved.value, want);
    EXPECT_LE(moved.value, most);
  }
}

LISTED_CASE(cases, bad_arguments_are_usage_errors) {
  Array x(DType::f32, 4 * comm.size()), y(DType::f64, 4), z(DType::f32, 3);
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()), 4);
  EXPECT_THROW(std::ignore = comm.reduce_scatter(x.view(), y.buffer(), Reduce::sum, "types"),
               UsageError);
  EXPECT_THROW(std::ignore = comm.reduce_scatter(x.view(), z.buffer(), Reduce::sum, "counts"),
               UsageError);
  EXPECT_THROW(std::ignore = comm.all_gather(z.view(), x.buffer(), "counts"), UsageError);
  EXPECT_THROW(std::ignore = comm.all_gather_v(z.view(), x.buffer(), counts, "own count"),
               UsageError);
  EXPECT_THROW(std::ignore = comm.all_to_all(x.view(), x.buffer(), "in place"), UsageError);
  EXPECT_THROW(std::ignore = comm.broadcast(x.buffer(), comm.size(), "root"), UsageError);
  comm.barrier("all still there")->wait();
}

/// Memory that cannot be: a negative count, one whose bytes overflow, none where there should be.
LISTED_CASE(cases, impossible_memory_is_a_usage_error) {
  Array x(DType::f32, 64 * comm.size());
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 4 + 1;  // f32 elements
  float* const some = static_cast<float*>(x.buffer().data);
  for (const auto& [data, count] : {std::pair{some, std::int64_t{-1}},
                                    {some, std::int64_t{-comm.size()}},
                                    {some, huge},
                                    {some, huge / comm.size() + comm.size()},
                                    {some, std::numeric_limits<std::int64_t>::min()},
                                    {static_cast<float*>(nullptr), std::int64_t{comm.size()}}}) {
    const Buffer bad{data, {count}, DType::f32};
    const bool fits = count > 0 && count < huge;  // itself, but not `size` times over
    std::vector<std::int64_t> counts(ranks, count);
    if (data == nullptr || !fits || comm.size() > 1) {
      const Buffer scattered{
          data, {static_cast<std::int64_t>(static_cast<std::uint64_t>(count) * ranks)}, DType::f32};
      EXPECT_THROW(std::ignore = comm.reduce_scatter(scattered, bad, Reduce::sum, "bad"),
                   UsageError)
          << count;
      EXPECT_THROW(std::ignore = comm.all_gather(bad, scattered, "bad"), UsageError) << count;
      EXPECT_THROW(std::ignore = comm.all_gather_v(bad, scattered, counts, "bad"), UsageError)
          << count;
    }
    if (data != nullptr && fits) continue;
    EXPECT_THROW(std::ignore = comm.all_reduce(bad, Reduce::sum, "bad"), UsageError) << count;
    EXPECT_THROW(std::ignore = comm.all_to_all(bad, {some, {count}, DType::f32}, "bad"), UsageError)
        << count;
    EXPECT_THROW(std::ignore = comm.broadcast(bad, 0, "bad"), UsageError) << count;
  }
  const Buffer nothing{nullptr, {0}, DType::f32};
  comm.all_reduce(nothing, Reduce::sum, "nothing is fine")->wait();
}

/// Submits `odd` on the last rank and `usual` on the others; every rank must read both
/// descriptions.
inline void expect_mismatch(Communicator& comm, const std::function<WorkPtr()>& usual,
                            const std::function<WorkPtr()>& odd,
                            const std::vector<std::string>& named) {
  if (comm.size() == 1) return;
  const int last = comm.size() - 1;
  const std::string said = error_of([&] { (comm.rank() == last ? odd() : usual())->wait(); });
  expect_said(said, named);
  expect_said(said, {"rank 0", "rank " + std::to_string(last)});
}

LISTED_CASE(cases, mismatches_are_named_on_every_rank) {
  comm.set_checked(true);
  Array x(DType::f32, 12 * comm.size()), y(DType::f64, 12 * comm.size());
  const auto reduce = [&](Array& a, std::int64_t n, Reduce op, const char* name) {
    return [&comm, &a, n, op, name] { return comm.all_reduce(a.block(0, n), op, name); };
  };
  const auto usual = reduce(x, 10, Reduce::sum, "grad");
  expect_mismatch(comm, usual, [&] { return comm.broadcast(x.block(0, 10), 0, "grad"); },
                  {"operation", "all-reduce", "broadcast"});
  expect_mismatch(comm, usual, reduce(x, 11, Reduce::sum, "grad"), {"count", "10 f32", "11 f32"});
  expect_mismatch(comm, usual, reduce(y, 10, Reduce::sum, "grad"), {"dtype", "f32", "f64"});
  expect_mismatch(comm, usual, reduce(x, 10, Reduce::sum, "bias"),
                  {"name", "\"grad\"", "\"bias\""});
  expect_mismatch(comm, usual, reduce(x, 10, Reduce::max, "grad"), {"reduction", "sum", "max"});
  expect_mismatch(
      comm, [&] { return comm.broadcast(x.buffer(), 0, "b"); },
      [&] { return comm.broadcast(x.buffer(), comm.size() - 1, "b"); }, {"root"});
  expect_sum(comm, 10, "nothing was sent, so all is well again");
}

/// Two collectives in swapped order on one rank: both fail, and say that the order may be the
/// reason.
LISTED_CASE(cases, swapped_order_is_a_mismatch) {
  comm.set_checked(true);
  if (comm.size() == 1) return;
  Array x(DType::f32, 5), y(DType::f32, 5);
  const bool swapped = comm.rank() == comm.size() - 1;
  const WorkPtr first =
      comm.all_reduce((swapped ? y : x).buffer(), Reduce::sum, swapped ? "y" : "x");
  const WorkPtr second =
      comm.all_reduce((swapped ? x : y).buffer(), Reduce::sum, swapped ? "x" : "y");
  for (const WorkPtr& work : {first, second})
    expect_said(error_of([&] { work->wait(); }), {"order", "\"x\"", "\"y\""});
}

/// The same results without the comparison of fingerprints.
LISTED_CASE(cases, unchecked_collectives_work) {
  comm.set_checked(false);
  expect_sum(comm, 300'007, "x");
  comm.set_checked(true);
}

// ---- groups ----

using Group = std::unique_ptr<Communicator>;

/// The members' ranks in `parent`, in the order of the group: proves who is in it and where.
inline std::vector<std::int32_t> members_of(Communicator& group, const Communicator& parent) {
  const std::int32_t own = parent.rank();
  std::vector<std::int32_t> all(static_cast<std::size_t>(group.size()));
  group.all_gather(buffer(own), buffer(all), "members of the group")->wait();
  return all;
}

LISTED_CASE(cases, split_into_even_and_odd) {
  const Group group = comm.split(comm.rank() % 2, 0, "parity");
  ASSERT_TRUE(group);
  std::vector<std::int32_t> want;
  for (int r = comm.rank() % 2; r < comm.size(); r += 2) want.push_back(r);
  EXPECT_EQ(members_of(*group, comm), want);
  EXPECT_EQ(group->rank(), comm.rank() / 2);
  EXPECT_EQ(group->size(), static_cast<int>(want.size()));
  EXPECT_EQ(group->transport(), comm.transport());
  expect_sum(*group, 300'007, "large");
}

/// Equal keys: the order of the parent, which need not be that of the job.
LISTED_CASE(cases, split_follows_the_keys_and_then_the_parent) {
  const Group reversed = comm.split(3, -comm.rank(), "reversed");
  const Group again = reversed->split(0, 7, "again");
  std::vector<std::int32_t> want;
  for (int r = comm.size(); r-- > 0;) want.push_back(r);
  for (const Group& group : {std::cref(reversed), std::cref(again)}) {
    EXPECT_EQ(members_of(*group, comm), want);
    EXPECT_EQ(group->rank(), comm.size() - 1 - comm.rank());
  }
}

/// On one and two ranks groups have one rank.
LISTED_CASE(cases, every_operation_of_a_group) {
  const Group group = comm.split(comm.rank() % 2, -comm.rank(), "parity, reversed");
  for (const auto& operation :
       {all_reduce_of_every_type, reduce_scatter_of_every_type, reduce_scatter_in_place,
        all_gather_of_every_type, all_gather_in_place, all_gather_v_of_uneven_pieces,
        all_to_all_of_every_type, broadcast_from_every_root, barrier_waits_for_the_last,
        several_in_flight, results_are_bitwise_equal, all_reduce_moves_what_theory_says,
        bad_arguments_are_usage_errors, unchecked_collectives_work}) {
    operation(*group);
  }
}

/// The last rank is in no group, and works with the others beside it.
LISTED_CASE(cases, ranks_without_a_group) {
  const bool outside = comm.rank() == comm.size() - 1;
  const Group group = comm.split(outside ? kNoGroup : 0, 0, "all but the last");
  EXPECT_EQ(group == nullptr, outside);
  for (int round = 0; round < 3; ++round) {
    if (group) expect_sum(*group, 70'001, "inside");
    expect_sum(comm, 70'001, "all");
  }
  EXPECT_EQ(comm.split(-7, 0, "nobody"), nullptr);
}

/// Many rounds on groups and their parent in one order, everything under way at once, sizes below
/// and above the chunk.
LISTED_CASE(cases, groups_and_parent_interleaved) {
  const Group parity = comm.split(comm.rank() % 2, 0, "parity");
  const Group reversed = comm.split(0, -comm.rank(), "reversed");
  const std::array<Communicator*, 3> all = {&comm, parity.get(), reversed.get()};
  struct Under {
    Communicator* comm;
    Array array;
    WorkPtr work;
  };
  for (const bool checked : {true, false}) {
    for (Communicator* c : all) c->set_checked(checked);
    std::vector<Under> under;
    under.reserve(90);
    for (int round = 0; round < 90; ++round) {
      Communicator* c = all[static_cast<std::size_t>(round * round / 2 % 3)];
      const std::int64_t count = round % 15 == 7 ? 100'003 : round * 37;
      Under& u = under.emplace_back(c, filled(DType::f32, count, c->rank()), nullptr);
      u.work = c->all_reduce(u.array.buffer(), Reduce::sum, "x" + std::to_string(round));
    }
    for (const Under& u : under) {
      u.work->wait();
      expect_reduced(u.array, u.comm->size());
    }
  }
}

LISTED_CASE(cases, split_of_a_split) {
  const Group low = comm.split(comm.rank() < (comm.size() + 1) / 2 ? 0 : 1, 0, "halves");
  const Group pair = low->split(low->rank() % 2, 0, "quarters");
  expect_sum(*pair, 100'003, "quarters");
  expect_sum(*low, 100'003, "halves");
  expect_sum(comm, 100'003, "all");
  const Group back = comm.split(0, 0, "all again");
  EXPECT_EQ(back->size(), comm.size());
  expect_sum(*back, 7, "all again");
}

/// A grid two ranks wide, row by row: any two of a row share a row, any two of a column a column.
LISTED_CASE(cases, rows_and_columns_in_turn) {
  const int row = comm.rank() / 2, column = comm.rank() % 2;
  const Group rows = comm.split(row, 0, "row " + std::to_string(row));
  const Group columns = comm.split(column, 0, "column " + std::to_string(column));
  for (int round = 0; round < 50; ++round) {
    expect_sum(*rows, round % 10 == 3 ? 100'003 : 5, "in rows");
    expect_sum(*columns, round % 10 == 6 ? 100'003 : 5, "in columns");
    std::int64_t sum = comm.rank() + 1;  // of rows of sums is of the whole
    if (comm.size() == 4) {
      rows->all_reduce(buffer(sum), Reduce::sum, "rows")->wait();
      columns->all_reduce(buffer(sum), Reduce::sum, "columns")->wait();
      EXPECT_EQ(sum, 1 + 2 + 3 + 4);
    }
  }
}

/// Groups work on when their parent is gone, and a group's end finishes what it began.
LISTED_CASE(cases, groups_outlive_their_parents) {
  Group outer = comm.split(0, 0, "outer");
  const Group inner = outer->split(0, 0, "inner");
  Array x = filled(DType::f32, 300'007, comm.rank());
  const WorkPtr work = outer->all_reduce(x.buffer(), Reduce::sum, "last of outer");
  outer.reset();
  EXPECT_TRUE(work->done());
  expect_reduced(x, comm.size());
  expect_sum(*inner, 7, "inner");
}

/// A group counts its own, the communicators that it was split from count it too.
LISTED_CASE(cases, traffic_of_groups_counts_for_their_parents) {
  const Group outer = comm.split(0, 0, "outer");
  const Group inner = outer->split(0, 0, "inner"), other = comm.split(0, 0, "other");
  const Traffic whole = comm.traffic(), before = outer->traffic();
  EXPECT_EQ(inner->traffic().sent.value, 0);
  expect_sum(*inner, 100'003, "x");
  const Bytes sent = inner->traffic().sent;
  EXPECT_EQ(sent.value > 0, comm.size() > 1);
  EXPECT_EQ((outer->traffic().sent - before.sent).value, sent.value);
  EXPECT_EQ((comm.traffic().sent - whole.sent).value, sent.value);
  EXPECT_EQ(other->traffic().sent.value, 0);
}

/// Checked mode compares the ranks of the group, calls them as the job does, and says the group.
LISTED_CASE(cases, mismatches_in_a_group_are_named) {
  comm.set_checked(true);
  const bool outside = comm.size() > 2 && comm.rank() == 0;
  const Group group = comm.split(outside ? kNoGroup : 0, 0, "workers");
  if (group && group->size() > 1) {
    Array x(DType::f32, 12);
    const bool odd = group->rank() == group->size() - 1;
    const std::string first = "rank " + std::to_string(comm.size() > 2 ? 1 : 0),
                      last = "rank " + std::to_string(comm.size() - 1);
    expect_said(error_of([&] {
                  group->all_reduce(x.block(0, odd ? 11 : 10), Reduce::sum, "grad")->wait();
                }),
                {"disagree on the count", first + " runs all-reduce sum of 10 f32",
                 last + " runs all-reduce sum of 11 f32", "in group \"workers\""});
    expect_sum(*group, 10, "nothing was sent");
  }
  expect_sum(comm, 10, "all is well");
}

LISTED_CASE(cases, groups_of_two_names_are_refused) {
  if (comm.size() == 1) return;
  const std::string name = comm.rank() == comm.size() - 1 ? "columns" : "rows";
  expect_said(error_of([&] { std::ignore = comm.split(0, 0, name); }),
              {"rank 0 says \"rows\"", "says \"columns\""});
  EXPECT_THROW(static_cast<void>(comm.split(0, 0, "")), UsageError);
  expect_sum(comm, 7, "still there");
}

/// Bytes of memory that nobody uses now; 0 where Linux does not say.
inline std::int64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string key; info >> key;) {
    std::int64_t kib = 0;
    if (key == "MemAvailable:" && info >> kib) return kib << 10;
  }
  return 0;
}

/// More than 2^31 bytes and elements in one call: an `int` count anywhere would wrap. Needs 2.2 GB
/// a rank.
inline constexpr std::int64_t kHuge = (std::int64_t{1} << 31) + 4097;
inline void more_than_an_int_of_bytes(Communicator& comm) {
  std::vector<std::uint8_t> x(static_cast<std::size_t>(kHuge),
                              static_cast<std::uint8_t>(comm.rank() + 1));
  x.front() = x.back() = 7;
  comm.all_reduce(buffer(x), Reduce::sum, "huge")->wait();
  EXPECT_EQ(x.front(), 7 * comm.size());
  EXPECT_EQ(x.back(), 7 * comm.size());
  const int sum = comm.size() * (comm.size() + 1) / 2;
  EXPECT_EQ(std::count(x.begin() + 1, x.end() - 1, static_cast<std::uint8_t>(sum)), kHuge - 2);
}

}  // namespace linerate::comm::suite
