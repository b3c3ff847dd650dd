// A communicator that Python closes; operations on tensors' memory, for what is not a gradient.
// Private to the extension.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/error.hpp"

namespace linerate::python {

class World {
 public:
  explicit World(std::unique_ptr<comm::Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  comm::Communicator& get() const {
    if (!communicator_) throw UsageError("the communicator has been closed");
    return *communicator_;
  }
  void close() { communicator_.reset(); }

  std::vector<std::int64_t> sum(std::vector<std::int64_t> values, const std::string& name) const {
    get()
        .all_reduce({values.data(), {static_cast<std::int64_t>(values.size())}, DType::i64},
                    comm::Reduce::sum, name)
        ->wait();
    return values;
  }
  void broadcast(const at::Tensor& tensor, int root, const std::string& name) const {
    if (!tensor.device().is_cpu() || !tensor.is_non_overlapping_and_dense())
      throw UsageError("broadcast: expected a dense tensor on the CPU");
    get()
        .broadcast(
            {tensor.mutable_data_ptr(), {static_cast<std::int64_t>(tensor.nbytes())}, DType::u8},
            root, name)
        ->wait();
  }

 private:
  std::unique_ptr<comm::Communicator> communicator_;
};

}  // namespace linerate::python
