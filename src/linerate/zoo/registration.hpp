// The layers of a zoo network that K-FAC takes, before any training. No LibTorch in this header.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linerate/torch_adapter/kfac/kfac_report.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::zoo {

struct RegistrationReport {
  std::string model;
  std::int64_t parameters = 0;  // of the whole network
  std::vector<torch_adapter::RegisteredLayer> layers;
};

/// For the network and the strategy that these options train, without data and without a step.
/// Throws UsageError, also for a strategy without kfac.
RegistrationReport registration_report(const TrainOptions& options);

/// For people: layers whose names differ only in numbers share a line.
std::string text_of(const RegistrationReport& report);

}  // namespace linerate::zoo
