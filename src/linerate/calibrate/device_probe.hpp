// What codecs and K-FAC's parts cost where tensors lie: asked for and fitted here, measured by
// LibTorch.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "linerate/calibrate/codec_probe.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/second_order_cost.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::calibrate {

struct DeviceWork {
  std::string device;  // as PyTorch names it: "cuda", "cuda:1", "cpu"
  std::vector<doc::Component> codecs = {};
  bool second_order = false;
  int threads = 1;  // of operators on the CPU
};

struct DeviceSamples {
  std::string device;  // its type: "cuda"
  std::vector<CodecSamples> codecs = {};
  std::optional<doc::SecondOrderSamples> second_order = {};
  std::vector<std::string> notes = {};
};

/// Means over ranks, the same on every rank. Collective. Throws UsageError for what is no device's
/// name and DeviceError for a device that is not there, on every rank.
using DeviceProbe = std::function<DeviceSamples(comm::Communicator&, const DeviceWork&)>;

/// Fits what was measured and puts it where what processors take would be. Ranks that compute on an
/// accelerator share no cores.
void add_device_samples(doc::Cluster& cluster, const DeviceSamples& samples);

}  // namespace linerate::calibrate
