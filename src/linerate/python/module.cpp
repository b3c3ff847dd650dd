// The extension linerate._core. It is private to the package linerate, which has the public names.
#include "linerate/python/bindings.hpp"
#include "linerate/version.hpp"

NB_MODULE(_core, module) {
  nanobind::set_leak_warnings(false);  // what Python's caches keep to the end is no leak of ours
  module.attr("VERSION") = std::string(linerate::kVersion);
  linerate::python::bind_errors(module);
  linerate::python::bind_documents(module);
  linerate::python::bind_options(module);
  linerate::python::bind_verbs(module);
}
