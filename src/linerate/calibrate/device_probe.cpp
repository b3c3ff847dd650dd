#include "linerate/calibrate/device_probe.hpp"

#include "linerate/calibrate/second_order.hpp"

namespace linerate::calibrate {

void add_device_samples(doc::Cluster& cluster, const DeviceSamples& samples) {
  for (const CodecSamples& codec : samples.codecs) {
    doc::CodecCost cost = fit_codec(codec);
    cost.device = samples.device;
    add_codec(cluster, cost);
  }
  if (samples.second_order) {
    cluster.second_order = fit_second_order(*samples.second_order);
    cluster.second_order->device = samples.device;
  }
  if (samples.device != "cpu") cluster.cores.reset();
}

}  // namespace linerate::calibrate
