#include "linerate/core/units.hpp"

#include <gtest/gtest.h>

#include "linerate/core/dtype.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate {
namespace {

TEST(Units, SizeOverRateIsATime) {
  // 100e6 B at 10 Gbit/s = 100e6 / 1.25e9 s = 80 ms
  EXPECT_DOUBLE_EQ((Bytes{100'000'000} / BytesPerSecond{10e9 / 8}).value, 80e-3);
}

TEST(Units, MiBIsBinary) { EXPECT_EQ(MiB(1).value, 1 << 20); }

TEST(DType, NamesRoundTrip) {
  for (const std::string_view name : kDTypeNames) EXPECT_EQ(name_of(parse_dtype(name)), name);
  EXPECT_THROW(static_cast<void>(parse_dtype("f8")), UsageError);
}

TEST(Collective, SpellingsOfOneNameAgree) {
  for (const char* name : {"all-reduce", "allreduce", "AllReduce", "all_reduce", "ALL REDUCE"})
    EXPECT_EQ(parse_collective(name), Collective::all_reduce);
  EXPECT_THROW(static_cast<void>(parse_collective("some-reduce")), UsageError);
}

TEST(Collective, BusFactorIsTwiceForAllReduce) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 8), 1.75);  // 2(8-1)/8
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 4), 0.75);  // (4-1)/4
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
}

TEST(DurationOf, TakesEveryUnitOfChronoAndWhatWasTyped) {
  using namespace std::chrono_literals;
  const auto seconds = [](Duration d) { return d.count(); };
  EXPECT_EQ(seconds(60s), 60);
  EXPECT_EQ(seconds(250ms), 0.25);
  EXPECT_EQ(seconds(1.5s), 1.5);
  EXPECT_EQ(seconds(std::chrono::minutes(5)), 300);
  EXPECT_EQ(seconds(to_duration(parse_time("1.5s"))), 1.5);
  static_assert(!std::is_convertible_v<double, Duration>);  // a bare number says no unit
}

}  // namespace
}  // namespace linerate
