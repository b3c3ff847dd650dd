// Private: the parts of the extension module.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <utility>

#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/report/inputs.hpp"

namespace linerate::python {

namespace nb = nanobind;

/// A document as Python holds it: shared, never changed, so that threads may read it together.
template <typename Document>
struct Held {
  std::shared_ptr<const Document> document;
};

template <typename Document>
Held<Document> hold(Document document) {
  return {std::make_shared<const Document>(std::move(document))};
}

/// Without the GIL: what these functions do takes time and touches no Python object.
using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

/// The page as HTML, with its texts in the words of Python: ranks= for --ranks.
std::string html_of(const report::Inputs& inputs);

void bind_errors(nb::module_& module);
void bind_documents(nb::module_& module);
/// Binds `options(verb)`: the options that a verb's parser has.
void bind_options(nb::module_& module);
void bind_verbs(nb::module_& module);

}  // namespace linerate::python
