// Between tensors and the arrays of a checkpoint. Private to zoo.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/zoo/checkpoint.hpp"
#include "linerate/zoo/measurement.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::zoo {

/// Makes Arrays of tensors and keeps their memory.
class ArrayKeeper {
 public:
  Array array(const std::string& name, const at::Tensor& tensor);

 private:
  std::vector<at::Tensor> kept_;
};

/// A tensor with a copy of the array's values.
at::Tensor tensor_of(const Array& array);

/// The file as rank 0 reads it, on every rank; absent if it does not exist. Rank 0's InputError is
/// thrown everywhere. Collective.
std::optional<std::string> read_for_all(comm::Communicator& communicator,
                                        const std::filesystem::path& file);

/// Writes Timeline and Workload of a recorded run.
void save_measurement(const Measurement::Result& result, const TrainOptions& options);

}  // namespace linerate::zoo
