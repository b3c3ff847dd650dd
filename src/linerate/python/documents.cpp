// Documents: text and files, both ways.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "linerate/core/file.hpp"
#include "linerate/core/in_python.hpp"
#include "linerate/python/bindings.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/report/texts.hpp"
#include "linerate/trace/export/perfetto.hpp"
#include "linerate/verbs/verbs.hpp"
#include "linerate/version.hpp"

namespace linerate::python {
namespace {

// Binds a class with save and load besides its JSON.
template <typename Document>
DocumentClass<Document> bind_document(nb::module_& module, const char* name,
                                      Document (*load)(const std::filesystem::path&),
                                      Document (*read)(const std::string&, const std::string&)) {
  DocumentClass<Document> bound(module, name);
  bound.as_json(read)
      .template answers<std::string>(
          "save", "path",
          [](const Document& document, const std::string& path) { doc::save(document, path); })
      .def_static(
          "load", [load](const std::string& path) { return hold(load(path)); }, nb::arg("path"),
          WithoutGil());
  return bound;
}

}  // namespace

// Words are Python's: a note that names an option says its keyword.
std::string html_of(const report::Inputs& inputs) {
  report::Page page = report::page_of(inputs, "", std::string(kVersion));
  report::for_each_text(page, [](std::string& text) { text = in_python(text); });
  return report::to_html(page);
}

void bind_documents(nb::module_& module) {
  module.def(
      "write_file",
      [](const std::string& path, const std::string& text) { write_file_atomically(path, text); },
      nb::arg("path"), nb::arg("text"), WithoutGil());
  bind_document<doc::Workload>(module, "Workload", doc::load_workload, doc::workload_from_json);
  bind_document<doc::Cluster>(module, "Cluster", doc::load_cluster, doc::cluster_from_json)
      .gives("to_text", [](const doc::Cluster& cluster) { return report::to_text(cluster); })
      .answers<std::vector<std::string>>("summary_json", "notes", report::summary_json);
  bind_document<doc::Plan>(module, "Plan", doc::load_plan, doc::plan_from_json)
      .gives("to_dot", [](const doc::Plan& plan) { return report::to_dot(plan); });
  bind_document<doc::Timeline>(module, "Timeline", doc::load_timeline, doc::timeline_from_json)
      .gives("to_html",
             [](const doc::Timeline& timeline) {
               report::Inputs inputs;
               inputs.timelines.push_back({timeline.source, timeline.strategy, timeline});
               return html_of(inputs);
             })
      .answers<std::string>("save_perfetto", "path",
                            [](const doc::Timeline& timeline, const std::string& path) {
                              trace::save_perfetto(timeline, path);
                            });
}

// What a verb's parser says of its options: the package makes keywords and help of it, and a test
// holds that none is forgotten.

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
template <typename Options>
std::vector<OptionLine> lines_for(const Words& names, Options options = {}) {
  const VerbParser parser(names, options);
  std::vector<OptionLine> lines;
  for (const CLI::Option* option : parser.verb().get_options()) {
    if (option == parser.verb().get_help_ptr()) continue;
    const bool positional = option->get_positional();
    lines.push_back({.name = positional ? option->get_name(true) : option->get_lnames().front(),
                     .type = option->get_type_size() == 0 ? "" : option->get_type_name(),
                     .says = option->get_description(),
                     .positional = positional,
                     .repeated = option->get_items_expected_max() > 1,
                     .required = option->get_required()});
  }
  return lines;
}

// A name that is no verb is that of a collective: whatif has a sub-verb for each.
std::vector<OptionLine> options_of(const std::string& verb) {
  if (verb == "advise") return lines_for<verbs::AdviseOptions>({verb});
  if (verb == "calibrate") return lines_for<verbs::CalibrateOptions>({verb});
  if (verb == "compare") return lines_for<verbs::CompareOptions>({verb});
  if (verb == "explain") return lines_for<verbs::ExplainOptions>({verb});
  if (verb == "export") return lines_for<verbs::ExportOptions>({verb});
  if (verb == "import") return lines_for<verbs::ImportOptions>({verb});
  if (verb == "plan") return lines_for<verbs::PlanOptions>({verb});
  if (verb == "report") return lines_for<verbs::ReportOptions>({verb});
  if (verb == "whatif") return lines_for<verbs::WhatifOptions>({verb});
  verbs::CollectiveOptions options;
  options.collective = parse_collective(verb);
  return lines_for({"whatif", verb}, options);
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
