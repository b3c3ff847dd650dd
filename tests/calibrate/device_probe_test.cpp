// What was measured on a device becomes costs of a Cluster.
#include "linerate/calibrate/probe.hpp"

#include <gtest/gtest.h>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"

namespace linerate::calibrate {
namespace {

/// 20 us and 1 ns a byte, 10 us and 2 ns a byte.
CodecSamples linear_codec(const std::string& name) {
  CodecSamples samples{name, {}, {}};
  for (const double bytes : {1e4, 1e5, 1e6, 1e7}) {
    samples.encode.push_back({.bytes = bytes, .seconds = 20e-6 + 1e-9 * bytes});
    samples.decode.push_back({.bytes = bytes, .seconds = 10e-6 + 2e-9 * bytes});
  }
  return samples;
}

doc::Cluster cluster_of_processors() {
  doc::Cluster cluster;
  cluster.network = {1e9, 1e-5};
  cluster.codecs = {{"fp16", 7, 1, 7, 1}, {"other", 1, 1, 1, 1}};
  cluster.cores = 8;
  return cluster;
}

TEST(DeviceSamples, AreFittedAndStandWhereThoseOfProcessorsDid) {
  doc::Cluster cluster = cluster_of_processors();
  add_device_samples(cluster, {.device = "cuda", .codecs = {linear_codec("fp16")}});
  ASSERT_EQ(cluster.codecs.size(), 2u);
  EXPECT_EQ(cluster.codecs[0].name, "other");
  EXPECT_EQ(cluster.codecs[0].device, "");
  const doc::CodecCost& cost = cluster.codecs[1];
  EXPECT_EQ(cost.name, "fp16");
  EXPECT_EQ(cost.device, "cuda");
  EXPECT_TRUE(cost.is_own());
  EXPECT_NEAR(cost.encode_tensor_s, 20e-6, 1e-9);
  EXPECT_NEAR(cost.encode_bytes_per_s, 1e9, 1e5);
  EXPECT_NEAR(cost.decode_tensor_s, 10e-6, 1e-9);
  EXPECT_NEAR(cost.decode_bytes_per_s, 5e8, 1e5);
  EXPECT_FALSE(cluster.second_order.has_value());
  EXPECT_EQ(doc::cluster_from_json(doc::to_json(cluster), "c").codecs[1].device, "cuda");
}

/// The code for devices on processors is still theirs.
TEST(DeviceSamples, OfAnAcceleratorShareNoCores) {
  doc::Cluster cluster = cluster_of_processors();
  add_device_samples(cluster, {.device = "cpu"});
  EXPECT_EQ(cluster.cores, 8);
  add_device_samples(cluster, {.device = "xpu"});
  EXPECT_FALSE(cluster.cores.has_value());
}

TEST(DeviceSamples, OfKfacNameTheirDeviceAndKeepBatches) {
  doc::Cluster cluster = cluster_of_processors();
  doc::SecondOrderSamples samples;
  samples.inverses = {{64, 1e-4}, {256, 5e-4}};
  samples.factors = {{.flops = 1e9, .inputs = 1e5, .elements = 1e4, .seconds = 1e-3}};
  samples.directions = {{.flops = 1e8, .seconds = 1e-4}};
  samples.batches = {{64, 4, 4e-4, 1.1e-4}, {256, 4, 2e-3, 1.8e-3}};
  add_device_samples(cluster, {.device = "cuda", .second_order = samples});
  const doc::Cluster read = doc::cluster_from_json(doc::to_json(cluster), "c");
  ASSERT_TRUE(read.second_order.has_value());
  EXPECT_EQ(read.second_order->device, "cuda");
  EXPECT_EQ(read.second_order->inverses.size(), 2u);
  ASSERT_EQ(read.second_order->batches.size(), 2u);
  EXPECT_EQ(read.second_order->batches[1].dim, 256);
  EXPECT_EQ(read.second_order->batches[1].count, 4);
  EXPECT_EQ(read.second_order->batches[1].together_s, 1.8e-3);
}

/// So do its devices go to them in turn.
TEST(DeviceSamples, AreOfTheRanksOfAMachineInOrder) {
  comm::run_ranks(3, [](comm::Communicator& communicator) {
    EXPECT_EQ(rank_on_machine(communicator), communicator.rank());
  });
}

TEST(DeviceSamples, OfACodecThatCompressesNothingAreRefused) {
  doc::Cluster cluster;
  EXPECT_THROW(add_device_samples(cluster, {.device = "cuda", .codecs = {{"topk", {}, {}}}}),
               UsageError);
}

}  // namespace
}  // namespace linerate::calibrate
