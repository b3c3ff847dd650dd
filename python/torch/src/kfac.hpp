// K-FAC of Python's layers. Private to the extension.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <memory>

#include "linerate/kfac/kfac.hpp"

namespace linerate::python {

struct PythonKfac {
  std::unique_ptr<torch_adapter::KFAC> kfac;
  std::atomic<double> rate{0};  // the optimizer's, of the step that is being taken
};

void add_kfac(py::module_& m);

}  // namespace linerate::python
