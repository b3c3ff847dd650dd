// What to change in a running job: a calibration of its live group, and advice from it. Private to
// the extension.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace linerate::python {

void add_advice(py::module_& m);

}  // namespace linerate::python
