#include "linerate/compress/compression_state.hpp"

#include <gtest/gtest.h>

#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

CompressionState state(float residual, std::byte codec) {
  return {7, {{"a", {{residual, 2 * residual}, "topk", {codec}}}, {"b", {{}, "", {}}}}};
}

bool same(const CompressionState& x, const CompressionState& y) {
  if (x.step != y.step || x.tensors.size() != y.tensors.size()) return false;
  for (const auto& [name, tensor] : x.tensors) {
    const auto other = y.tensors.find(name);
    if (other == y.tensors.end() || other->second.residual != tensor.residual ||
        other->second.method != tensor.method || other->second.codec != tensor.codec)
      return false;
  }
  return true;
}

TEST(CompressionState, SurvivesItsBytes) {
  const CompressionState before = state(1.5f, std::byte{3});
  EXPECT_TRUE(same(compression_state_from(to_bytes(before), "file"), before));
}

/// Cut anywhere, or with something behind it: an error that names the file, never an overrun.
TEST(CompressionState, DamagedBytesAreRefused) {
  const std::string whole = to_bytes(state(1, std::byte{1}));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const std::string cut = whole.substr(0, n);
    EXPECT_THROW(compression_state_from(cut, "file"), InputError) << n;
  }
  EXPECT_THROW(compression_state_from(whole + "x", "file"), InputError);
}

/// As many ranks go on with their own; another number with the mean, so that the mean over ranks
/// of what is still to be sent stays what it was.
TEST(CompressionState, OfAnotherNumberOfRanksIsTheMean) {
  const std::vector<CompressionState> parts = {state(1, std::byte{1}), state(4, std::byte{2}),
                                               state(7, std::byte{3})};
  for (int r = 0; r < 3; ++r)
    EXPECT_TRUE(same(state_for(r, 3, parts), parts[static_cast<std::size_t>(r)]));
  for (const int ranks : {1, 2, 4})
    for (int r = 0; r < ranks; ++r)
      EXPECT_EQ(state_for(r, ranks, parts).tensors.at("a").residual, (std::vector<float>{4, 8}));
}

}  // namespace
}  // namespace linerate::compress
