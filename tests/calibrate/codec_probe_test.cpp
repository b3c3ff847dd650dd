#include "linerate/calibrate/codec_probe.hpp"

#include <gtest/gtest.h>

#include "linerate/core/error.hpp"

namespace linerate::calibrate {
namespace {

const CodecProbeOptions kQuick{.elements = {1 << 12, 1 << 14}, .budget_per_size = Duration{1e-3}};

/// Every compressor has a cost that grows with tensors and bytes, under the name that strategies
/// use.
TEST(CodecProbe, TimesEveryCompressor) {
  for (const doc::Component& component : all_compressors()) {
    const doc::CodecCost cost = probe_codec(component, kQuick);
    EXPECT_EQ(cost.name, component.name);
    EXPECT_GE(cost.encode_tensor_s, 0) << cost.name;
    EXPECT_GE(cost.decode_tensor_s, 0) << cost.name;
    EXPECT_GT(cost.encode_tensor_s + cost.encode_bytes_per_s, 0) << cost.name;
    EXPECT_GT(cost.decode_tensor_s + cost.decode_bytes_per_s, 0) << cost.name;
  }
}

TEST(CodecProbe, KeepsOptionsInItsName) {
  const doc::Component component = parse_compressor("topk(density=0.1)");
  EXPECT_EQ(probe_codec(component, kQuick).name, "topk(density=0.1)");
}

TEST(CodecProbe, ReplacesWhatTheClusterHad) {
  doc::Cluster cluster;
  cluster.codecs = {{"fp16", 7, 0, 7, 0}, {"other", 1, 0, 1, 0}};
  add_codecs(cluster, {parse_compressor("fp16")});
  ASSERT_EQ(cluster.codecs.size(), 2u);
  EXPECT_EQ(cluster.codecs[0].name, "other");
  EXPECT_EQ(cluster.codecs[1].encode_fixed_s, 0);
}

TEST(CodecProbe, RefusesWhatIsNoCompressor) {
  EXPECT_THROW(parse_compressor("topkk"), UsageError);
  EXPECT_THROW(parse_compressor("topk(density=2)"), UsageError);
}

}  // namespace
}  // namespace linerate::calibrate
