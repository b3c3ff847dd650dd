// What a verb's parser says of its options: the package makes keywords and help of it, and a test
// holds that none is forgotten.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "linerate/python/bindings.hpp"
#include "linerate/python/verb_parser.hpp"
#include "linerate/verbs/advise.hpp"
#include "linerate/verbs/calibrate.hpp"
#include "linerate/verbs/compare.hpp"
#include "linerate/verbs/explain.hpp"
#include "linerate/verbs/export.hpp"
#include "linerate/verbs/import.hpp"
#include "linerate/verbs/plan.hpp"
#include "linerate/verbs/report.hpp"
#include "linerate/verbs/whatif.hpp"
#include "linerate/verbs/whatif_collective.hpp"

namespace linerate::python {
namespace {

/// One option of a parser.
struct OptionLine {
  std::string name;  // "step-time", "files"
  std::string type;  // "TIME", "SIZE", "RATE", "TEXT", ...; empty: a flag
  std::string says;
  bool positional = false;
  bool repeated = false;  // takes several values, each written after the option's name
  bool required = false;
};

// The options of a parser in their order, without --help.
std::vector<OptionLine> lines_of(const CLI::App& verb) {
  std::vector<OptionLine> lines;
  for (const CLI::Option* option : verb.get_options()) {
    if (option == verb.get_help_ptr()) continue;
    OptionLine line;
    line.positional = option->get_positional();
    line.name = line.positional ? option->get_name(true) : option->get_lnames().front();
    line.type = option->get_type_size() == 0 ? "" : option->get_type_name();
    line.says = option->get_description();
    line.repeated = option->get_items_expected_max() > 1;
    line.required = option->get_required();
    lines.push_back(std::move(line));
  }
  return lines;
}

template <typename Options>
std::vector<OptionLine> lines_for(const char* name) {
  Options options;
  return lines_of(VerbParser({name}, options).verb());
}

// A name that is no verb is that of a collective: whatif has a sub-verb for each.
std::vector<OptionLine> options_of(const std::string& verb) {
  if (verb == "advise") return lines_for<verbs::AdviseOptions>("advise");
  if (verb == "calibrate") return lines_for<verbs::CalibrateOptions>("calibrate");
  if (verb == "compare") return lines_for<verbs::CompareOptions>("compare");
  if (verb == "explain") return lines_for<verbs::ExplainOptions>("explain");
  if (verb == "export") return lines_for<verbs::ExportOptions>("export");
  if (verb == "import") return lines_for<verbs::ImportOptions>("import");
  if (verb == "plan") return lines_for<verbs::PlanOptions>("plan");
  if (verb == "report") return lines_for<verbs::ReportOptions>("report");
  if (verb == "whatif") return lines_for<verbs::WhatifOptions>("whatif");
  verbs::CollectiveOptions options;
  options.collective = parse_collective(verb);
  return lines_of(VerbParser({"whatif", verb}, options).verb());
}

}  // namespace

void bind_options(nb::module_& module) {
  nb::class_<OptionLine>(module, "Option")
      .def_ro("name", &OptionLine::name)
      .def_ro("type", &OptionLine::type)
      .def_ro("says", &OptionLine::says)
      .def_ro("positional", &OptionLine::positional)
      .def_ro("repeated", &OptionLine::repeated)
      .def_ro("required", &OptionLine::required);
  module.def("options", options_of, nb::arg("verb"));
}

}  // namespace linerate::python
