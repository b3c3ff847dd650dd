// Documents: text and files, both ways.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "linerate/core/file.hpp"
#include "linerate/core/in_python.hpp"
#include "linerate/python/bindings.hpp"
#include "linerate/report/cluster_text.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/report/plan_dot.hpp"
#include "linerate/trace/export/perfetto.hpp"
#include "linerate/version.hpp"

namespace linerate::python {
namespace {

// Binds a class with to_json, save, load, from_json and pickling. Everything takes JSON, so a
// document that crosses processes keeps the rules of a file.
template <typename Document>
nb::class_<Held<Document>> bind_document(nb::module_& module, const char* name,
                                         Document (*load)(const std::filesystem::path&),
                                         Document (*read)(const std::string&, const std::string&)) {
  using Handle = Held<Document>;
  return nb::class_<Handle>(module, name)
      .def(
          "to_json", [](const Handle& held) { return doc::to_json(*held.document); }, WithoutGil())
      .def(
          "save",
          [](const Handle& held, const std::string& path) { doc::save(*held.document, path); },
          nb::arg("path"), WithoutGil())
      .def_static(
          "load", [load](const std::string& path) { return hold(load(path)); }, nb::arg("path"),
          WithoutGil())
      .def_static(
          "from_json",
          [read](const std::string& text, const std::string& place) {
            return hold(read(text, place));
          },
          nb::arg("text"), nb::arg("place"), WithoutGil())
      .def("__getstate__", [](const Handle& held) { return doc::to_json(*held.document); })
      .def("__setstate__", [read](Handle& held, const std::string& text) {
        new (&held) Handle(hold(read(text, "a pickle")));
      });
}

std::string page_of(const Held<doc::Timeline>& held) {
  report::Inputs inputs;
  const doc::Timeline& timeline = *held.document;
  inputs.timelines.push_back({timeline.source, timeline.strategy, timeline});
  return html_of(inputs);
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
      .def(
          "to_text", [](const Held<doc::Cluster>& held) { return report::to_text(*held.document); },
          WithoutGil())
      .def(
          "summary_json",
          [](const Held<doc::Cluster>& held, const std::vector<std::string>& notes) {
            return report::summary_json(*held.document, notes);
          },
          nb::arg("notes"), WithoutGil());
  bind_document<doc::Plan>(module, "Plan", doc::load_plan, doc::plan_from_json)
      .def(
          "to_dot", [](const Held<doc::Plan>& held) { return report::to_dot(*held.document); },
          WithoutGil());
  bind_document<doc::Timeline>(module, "Timeline", doc::load_timeline, doc::timeline_from_json)
      .def("to_html", page_of, WithoutGil())
      .def(
          "save_perfetto",
          [](const Held<doc::Timeline>& held, const std::string& path) {
            trace::save_perfetto(*held.document, path);
          },
          nb::arg("path"), WithoutGil());
}

}  // namespace linerate::python
