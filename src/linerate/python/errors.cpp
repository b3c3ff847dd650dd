// Kinds of error: those of docs/errors.md, under the same names, with the command's text in the
// words of Python.
#include "linerate/core/error.hpp"

#include "linerate/core/in_python.hpp"
#include "linerate/python/bindings.hpp"

namespace linerate::python {
namespace {

// A class of Python for a class of C++, and how an error is recognised as one.
struct Kind {
  const char* name;
  int exit_code;
  const char* says;
  bool (*is)(const Error&);
};

template <typename E>
bool is_a(const Error& error) {
  return dynamic_cast<const E*>(&error) != nullptr;
}

constexpr Kind kKinds[] = {
    {"UsageError", 2, "Wrong option, argument, strategy, unit.", is_a<UsageError>},
    {"InputError", 3, "A file, a document or the job is wrong.", is_a<InputError>},
    {"CommError", 4, "Ranks are absent, or one failed.", is_a<CommError>},
    {"DeviceError", 5, "An accelerator failed or is absent.", is_a<DeviceError>},
    {"InternalError", 70, "A bug in linerate.", is_a<InternalError>},
    {"Error", 1, "Base of every error of linerate. exit_code: what the command exits with.",
     [](const Error&) { return true; }}};  // the base last: it is any kind's

PyObject* classes[std::size(kKinds)];  // of kKinds; as long as the program lives

// The translator that nanobind calls for an exception. The first kind that fits is raised; the base
// fits all.
void raise(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    for (std::size_t i = 0; i < std::size(kKinds); ++i)
      if (kKinds[i].is(error)) return PyErr_SetString(classes[i], in_python(error.what()).c_str());
  }
}

}  // namespace

// Made from the base on, which is the last of the list.
void bind_errors(nb::module_& module) {
  for (std::size_t i = std::size(kKinds); i-- > 0;) {
    PyObject* const base =
        i + 1 == std::size(kKinds) ? PyExc_Exception : classes[std::size(kKinds) - 1];
    // A stub leaves out a class of another module, and its maker loads this one as "_core".
    const std::string name = nb::cast<std::string>(module.attr("__name__")) + "." + kKinds[i].name;
    classes[i] = PyErr_NewExceptionWithDoc(name.c_str(), kKinds[i].says, base, nullptr);
    if (!classes[i]) throw nb::python_error();
    const nb::object kind = nb::borrow(classes[i]);
    kind.attr("exit_code") = kKinds[i].exit_code;
    module.attr(kKinds[i].name) = kind;
  }
  nb::register_exception_translator(raise);
  module.def(
      "in_python", [](const std::string& text) { return in_python(text); }, nb::arg("text"),
      "A message of the command in the words of Python.");
}

}  // namespace linerate::python
