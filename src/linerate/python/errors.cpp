// Kinds of error: those of docs/errors.md, under the same names, with the command's text.
#include "linerate/core/error.hpp"
#include "linerate/python/bindings.hpp"

namespace linerate::python {
namespace {

template <typename E>
void bind_kind(nb::module_& module, const char* name, int exit_code, nb::handle base,
               const char* says) {
  nb::exception<E> kind(module, name, base.ptr());
  kind.attr("exit_code") = exit_code;
  kind.attr("__doc__") = says;
}

}  // namespace

void bind_errors(nb::module_& module) {
  bind_kind<Error>(module, "Error", 1, PyExc_Exception,
                   "Base of every error of linerate. exit_code: what the command exits with.");
  const nb::object base = module.attr("Error");
  bind_kind<UsageError>(module, "UsageError", 2, base, "Wrong option, argument, strategy, unit.");
  bind_kind<InputError>(module, "InputError", 3, base, "A file, a document or the job is wrong.");
  bind_kind<CommError>(module, "CommError", 4, base, "Ranks are absent, or one failed.");
  bind_kind<DeviceError>(module, "DeviceError", 5, base, "An accelerator failed or is absent.");
  bind_kind<InternalError>(module, "InternalError", 70, base, "A bug in linerate.");
}

}  // namespace linerate::python
