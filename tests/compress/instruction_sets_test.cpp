// The same bits on every instruction set: what the sparse and low-rank methods send, and what their
// kernels give, compared with those of the set that this machine prefers.
#include <gmock/gmock.h>

#include "inputs.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/registry.hpp"
#include "rank_group.hpp"
#include "support/instruction_sets.hpp"

namespace linerate::compress {
namespace {

/// Runs `work` once per instruction set and expects what the first run gave.
template <class Work>
void expect_equal_everywhere(Work work) {
  const auto expected = work();
  int sets = 0;
  on_each_instruction_set([&] {
    EXPECT_EQ(work(), expected);
    ++sets;
  });
  EXPECT_GE(sets, 1);
}

TEST(InstructionSets, MomentsAreTheSame) {
  for (const std::size_t n : {1u, 31u, 100u, 5003u}) {
    const std::vector<float> v = noise(n, 1);
    expect_equal_everywhere([&] {
      Moments all;
      LogSum logs;
      all.add(v), logs.add(v);
      const TailFit tail = tail_of(v, 0x3f800000);  // from 1 up
      return std::vector<double>{all.mean(),        all.variance(),   all.largest(),
                                 1.0 * all.count(), tail.mean_excess, tail.variance,
                                 logs.sum(),        1.0 * tail.count, 1.0 * tail.smallest};
    });
  }
}

TEST(InstructionSets, ProductsAreTheSame) {
  const std::size_t rows = 37, columns = 2077, rank = 7;
  const auto m = noise(rows * columns, 1), q = noise(rank * columns, 2), p = noise(rank * rows, 3);
  expect_equal_everywhere([&] {
    std::vector<float> all(rank * rows + rank * columns + rows * columns);
    const auto out = std::span(all);
    RightProduct(q, columns)({m.data(), rows, columns}, out.data(), rows);
    left_product({m.data(), rows, columns}, p, out.subspan(rank * rows, rank * columns));
    write_product(p, q, rows, columns, out.data() + rank * (rows + columns));
    const std::vector<double> wide(m.begin(), m.end());
    all.push_back(static_cast<float>(dot(wide, wide)));
    return all;
  });
}

TEST(InstructionSets, PayloadsAreTheSame) {
  const Shape shape{9000, 90};
  for (const std::string& name : compressors().names()) {
    SCOPED_TRACE(name);
    const auto compressor = make_compressor(doc::parse_component(name));
    const bool keeps = compressor->residual() == Residual::needed;
    expect_equal_everywhere([&] {
      RankGroup two(*compressor, shape, 2, keeps);
      std::vector<std::vector<std::uint8_t>> all;
      for (std::uint64_t step = 0; step < 3; ++step) {
        const std::vector<float> mean =
            two.step({noise(9000, 2 * step), noise(9000, 2 * step + 1)}, step);
        for (const auto& payload : two.sent_bytes()) all.push_back(payload);
        const auto bytes = std::as_bytes(std::span(mean));
        all.push_back(Payload(bytes).copy());
      }
      return all;
    });
  }
}

}  // namespace
}  // namespace linerate::compress
