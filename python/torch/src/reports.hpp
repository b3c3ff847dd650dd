// What a step did, for Python. Private to the extension.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace linerate::python {

/// StepReport and KfacStep: fields with their documentation, a repr, HTML, a dict and a pickle.
void add_reports(py::module_& m);

}  // namespace linerate::python
