// A communicator alone, without LibTorch and MPI: the ranks are threads of this process. Operations
// return at once; their handle waits. All ranks submit the same ones in the same order.
//
//   $ ./050-communicator-threads
//   all-reduce: the sum over 4 ranks is 6 10 14
//   all-gather-v: 0 1 1 2 2 2 3 3 3 3
//   groups: ranks 0 and 1 have 1, ranks 2 and 3 have 5
//   error: rank 3 has no more data
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/thread/run_ranks.hpp"

using namespace linerate;

void work(comm::Communicator& world) {
  const int rank = world.rank();
  const bool first = rank == 0;

  // In place, and bit for bit the same on every rank.
  std::vector<float> values = {rank + 0.0f, rank + 1.0f, rank + 2.0f};
  const comm::WorkPtr sum = world.all_reduce(comm::buffer(values), comm::Reduce::sum, "values");
  // ... compute something else here; `values` belongs to the operation until wait() returns.
  sum->wait();
  if (first)
    std::printf("all-reduce: the sum over %d ranks is %g %g %g\n", world.size(), values[0],
                values[1], values[2]);

  // Rank r gives r + 1 numbers.
  const std::vector<std::int32_t> mine(rank + 1, rank);
  std::vector<std::int64_t> counts(world.size());
  std::iota(counts.begin(), counts.end(), 1);
  std::vector<std::int32_t> all(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  world.all_gather_v(comm::buffer(mine), comm::buffer(all), counts, "uneven parts")->wait();
  if (first) std::printf("all-gather-v:");
  for (std::size_t i = 0; first && i < all.size(); ++i) std::printf(" %d", all[i]);
  if (first) std::printf("\n");

  // Ranks 0 and 1 | 2 and 3: a group is a communicator like any other.
  const auto pair = world.split(rank / 2, rank, "pair");
  std::int64_t in_pair = rank;
  pair->all_reduce(comm::buffer(in_pair), comm::Reduce::sum, "sum of the pair")->wait();
  std::vector<std::int64_t> pairs(world.size());
  world.all_gather(comm::buffer(in_pair), comm::buffer(pairs), "sums of pairs")->wait();
  if (first)
    std::printf("groups: ranks 0 and 1 have %lld, ranks 2 and 3 have %lld\n",
                static_cast<long long>(pairs[1]), static_cast<long long>(pairs[2]));

  // Whatever a rank throws wakes the others, which wait for it here.
  if (rank == 3) throw std::runtime_error("rank 3 has no more data");
  world.barrier("at the end")->wait();
}

int main() {
  try {
    comm::run_ranks(4, work);
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
  }
}
