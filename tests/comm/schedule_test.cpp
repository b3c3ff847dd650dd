// The schedules alone, over threads, with chunks of 64 bytes: a few thousand elements then walk
// through every window, piece and lane that megabytes would.
#include "linerate/comm/schedule/collectives.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <thread>

#include "comm/communicator_suite.hpp"
#include "linerate/comm/thread/thread_channel.hpp"

namespace linerate::comm {
namespace {

using suite::Array;

constexpr std::size_t kChunk = 64;

enum class Way { ring, direct };
struct Setup {
  int ranks;
  Way way;
  std::int64_t reads = std::numeric_limits<std::int64_t>::max();  // that the last rank is let do
};

/// Calls f(channel, pool) on every rank, in a thread each. Nothing is small enough for the latency
/// algorithms.
void on_channels(Setup setup, const std::function<void(Channel&, ChunkPool&)>& f) {
  const int ranks = setup.ranks;
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  ThreadWorld world(ranks, std::chrono::seconds(60), kChunk, 0, setup.way == Way::direct);
  world.allow_reads(ranks - 1, setup.reads);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&world, &members, &f, r] {
      const std::unique_ptr<Transport> transport = world.channel(r);
      Channel channel(*transport, members, r);
      ChunkPool pool(kChunk);
      transport->submitted(members);
      const Fingerprint print;
      transport->begin({.members = members, .print = &print});
      f(channel, pool);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class Schedule : public ::testing::TestWithParam<Setup> {};

TEST_P(Schedule, AllReduceSumsOnEveryRank) {
  for (const std::int64_t count : {1, 2, 5, 16, 17, 333, 1024, 4099}) {
    on_channels(GetParam(), [&](Channel& channel, ChunkPool& pool) {
      Array x = suite::filled(DType::f32, count, channel.rank());
      all_reduce(channel, pool, x.buffer(), Reduce::sum);
      suite::expect_reduced(x, channel.size());
    });
  }
}

TEST_P(Schedule, ReduceScatterGivesEachRankItsBlock) {
  for (const std::int64_t count : {1, 5, 16, 17, 333, 1031}) {
    on_channels(GetParam(), [&](Channel& channel, ChunkPool& pool) {
      const Array input = suite::filled(DType::f64, channel.size() * count, channel.rank());
      Array output(DType::f64, count);
      reduce_scatter(channel, pool, input.view(), output.buffer(), Reduce::max);
      const auto want = [&](auto i) {
        return suite::expected(Reduce::max, channel.size(), channel.rank() * count + i);
      };
      EXPECT_EQ(suite::first_difference(output, want), -1) << count;
    });
  }
}

/// Ranks cut at places of their own, and none need read: the same bits as of one written array.
TEST_P(Schedule, SumsOfPiecesHaveTheBitsOfOneArray) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const std::int64_t count : {1, 16, 333, 4099}) {
      std::vector<std::uint64_t> hashes(2);
      for (const bool as_pieces : {false, true}) {
        on_channels(GetParam(), [&](Channel& channel, ChunkPool& pool) {
          suite::Scattered own(dtype, count, channel.rank());
          Array& sum = as_pieces ? own.array : own.written;
          if (as_pieces)
            all_reduce(channel, pool, sum.buffer(), Reduce::sum, own.pieces);
          else
            all_reduce(channel, pool, sum.buffer(), Reduce::sum);
          if (channel.rank() == 0) hashes[as_pieces ? 1 : 0] = sum.hash();
        });
      }
      EXPECT_EQ(hashes[0], hashes[1]) << suite::label(dtype, count);
    }
  }
}

/// Pieces from nothing to many chunks, in every order along the ring.
TEST_P(Schedule, AllGatherTakesPiecesOfAnySizes) {
  for (const int shift : {0, 1, 2, 3}) {
    on_channels(GetParam(), [&](Channel& channel, ChunkPool& pool) {
      constexpr std::array<std::int64_t, 4> kCounts = {0, 700, 3, 129};
      std::vector<std::int64_t> counts;
      for (int r = 0; r < channel.size(); ++r) {
        counts.push_back(kCounts[static_cast<std::size_t>(r + shift) % 4]);
      }
      const Array input = suite::filled(
          DType::i32, counts[static_cast<std::size_t>(channel.rank())], channel.rank());
      Array output(DType::i32, std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
      all_gather(channel, pool, input.view(), output.buffer(), counts);
      suite::expect_gathered(output, counts);
    });
  }
}

TEST_P(Schedule, BroadcastReachesEveryRank) {
  on_channels(GetParam(), [&](Channel& channel, ChunkPool& pool) {
    const int root = channel.size() - 1;
    Array x = suite::filled(DType::f32, 3001, channel.rank());
    broadcast(channel, pool, x.buffer(), root);
    EXPECT_EQ(suite::first_difference(x, [&](auto i) { return suite::contribution(root, i); }), -1);
  });
}

/// A rank that comes last changes no bit: the schedule fixes the order of the additions, not the
/// time of arrival.
TEST_P(Schedule, ALateRankChangesNoBit) {
  std::vector<std::uint64_t> hashes(2);
  for (std::size_t late = 0; late < 2; ++late) {
    on_channels(GetParam(), [&](Channel& channel, ChunkPool& pool) {
      if (channel.rank() == static_cast<int>(late) % channel.size()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      Array x(DType::f32, 2000);
      for (std::int64_t i = 0; i < 2000; ++i) x.set(i, suite::unit_random(channel.rank(), i));
      all_reduce(channel, pool, x.buffer(), Reduce::sum);
      if (channel.rank() == 0) hashes[late] = x.hash();
    });
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

std::vector<Setup> setups() {
  std::vector<Setup> list;
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const Way way : {Way::ring, Way::direct}) list.push_back({ranks, way});
  for (const int ranks : {2, 3, 5})
    for (const std::int64_t reads : {0, 1, 3, 8}) list.push_back({ranks, Way::direct, reads});
  return list;
}
std::string name_of_setup(const ::testing::TestParamInfo<Setup>& info) {
  const auto& [ranks, way, reads] = info.param;
  return std::to_string(ranks) + (way == Way::ring ? "ring" : "direct") +
         (reads < 1000 ? "DeniedAfter" + std::to_string(reads) : "");
}
INSTANTIATE_TEST_SUITE_P(Ranks, Schedule, ::testing::ValuesIn(setups()), name_of_setup);

/// Of pieces that are read, only this rank's own block of the array is written before the gather.
TEST(DirectReads, WriteOnlyTheRanksOwnBlockBeforeTheGather) {
  on_channels({3, Way::direct}, [&](Channel& channel, ChunkPool& pool) {
    constexpr std::int64_t kBlock = 100;
    suite::Scattered own(DType::f32, 3 * kBlock, channel.rank());
    const Array before = own.array;
    reduce_scatter(channel, pool, own.array.view(), own.array.buffer(), Reduce::sum, own.pieces);
    for (std::int64_t i = 0; i < 3 * kBlock; ++i) {
      if (i / kBlock == channel.rank()) continue;
      ASSERT_EQ(own.array.get(i), before.get(i)) << i;
    }
  });
}

/// One rank is not let read any more: the result is right, and no rank reads in the next.
TEST(DirectReads, WhereOneIsDeniedAllStop) {
  on_channels({4, Way::direct, 2}, [&](Channel& channel, ChunkPool& pool) {
    EXPECT_TRUE(channel.reads_peers());
    for (int round = 0; round < 2; ++round) {
      Array x = suite::filled(DType::f32, 1024, channel.rank());
      all_reduce(channel, pool, x.buffer(), Reduce::sum);
      suite::expect_reduced(x, channel.size());
      EXPECT_FALSE(channel.reads_peers());
    }
  });
}

}  // namespace
}  // namespace linerate::comm
