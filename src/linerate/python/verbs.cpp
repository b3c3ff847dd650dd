// The verbs' calls: words as the command's, documents in place of files, results with their texts.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <fmt/format.h>

#include <filesystem>
#include <tuple>

#include "linerate/core/error.hpp"
#include "linerate/python/bindings.hpp"
#include "linerate/report/texts.hpp"
#include "linerate/verbs/verbs.hpp"

namespace linerate::python {
namespace {

/// An answer of whatif, and the words that asked. A pickle takes the words along, so that another
/// process can ask for the Timeline of one prediction.
struct Answered {
  Words words;
  verbs::Asked asked;
};
using Predictions = Held<Answered>;
using Advice = Held<doc::Advice>;

/// What words of a call stand for: {word: document}.
using NamedDocuments = nb::typed<nb::dict, std::string, nb::object>;

/// Adds a document of a dict {name: document}, under its name. The name stands in a call's words in
/// place of a file.
void hold_as(verbs::Documents& documents, const std::string& name, nb::handle value) {
  if (Held<doc::Workload> w; nb::try_cast(value, w)) return documents.hold(name, w.document);
  if (Held<doc::Cluster> c; nb::try_cast(value, c)) return documents.hold(name, c.document);
  if (Held<doc::Plan> p; nb::try_cast(value, p)) return documents.hold(name, p.document);
  if (Held<doc::Timeline> t; nb::try_cast(value, t)) return documents.hold(name, t.document);
  if (Advice a; nb::try_cast(value, a)) return documents.hold(name, a.document);
  Predictions asked;
  if (!nb::try_cast(value, asked)) {
    const std::string kind = nb::cast<std::string>(value.type().attr("__name__"));
    throw UsageError(fmt::format("{}: expected a document or a file, found a {}", name, kind));
  }
  documents.hold(name, std::shared_ptr<const doc::Predictions>(
                           asked.document, &asked.document->asked.answer));  // shares it
}

verbs::Documents documents_of(const NamedDocuments& held) {
  verbs::Documents documents;
  for (const auto& [name, value] : held) hold_as(documents, nb::cast<std::string>(name), value);
  return documents;
}

/// Parses the words into the verb's options and runs call(options, caller) in a thread that Ctrl-C
/// stops. `held` has the documents that words name.
template <typename Options, typename Call>
auto run(Options options, Words verb, Words words, const NamedDocuments& held, nb::handle progress,
         Call call) {
  VerbParser(std::move(verb), options).parse(std::move(words));
  using Result = decltype(call(options, std::declval<const verbs::Caller&>()));
  return interruptible<Result>([&](const verbs::Caller& caller) { return call(options, caller); },
                               documents_of(held), progress);
}

/// module.NAME(words, documents, progress); of the verb of the same name, if no other is given.
template <typename Options, typename Call>
void bind_verb(nb::module_& module, const char* name, Call call, const char* verb = nullptr) {
  module.def(
      name,
      [verb = verb ? verb : name, call](Words words, const NamedDocuments& documents,
                                        nb::handle progress) {
        return run(Options(), {verb}, std::move(words), documents, progress, call);
      },
      nb::arg("words"), nb::arg("documents"), nb::arg("progress").none());
}

void bind_explain(nb::module_& module) {
  using verbs::Explained;
  DocumentClass<Explained>(module, "Explanation")
      .gives("to_json",
             [](const Explained& e) {
               return trace::explain_json(e.explanation.breakdown, e.explanation.verdict);
             })
      .gives("to_text",
             [](const Explained& e) {
               return trace::explain_text(e.explanation.breakdown, e.explanation.verdict);
             })
      .gives("to_html",
             [](const Explained& e) {
               report::Inputs inputs;
               const std::string label = std::filesystem::path(e.source).stem().string();
               inputs.timelines.push_back({label, label, verbs::timeline_of(e), e.explanation});
               return html_of(inputs);
             })
      .gives("timeline", [](const Explained& e) { return hold(verbs::timeline_of(e)); });
  bind_verb<verbs::ExplainOptions>(module, "explain", [](const auto& options, const auto& caller) {
    return hold(verbs::explain(options, caller));
  });
}

void bind_import(nb::module_& module) {
  using Either = std::variant<Held<doc::Workload>, Held<doc::Timeline>>;
  bind_verb<verbs::ImportOptions>(
      module, "import_files",
      [](const auto& options, const auto&) {
        trace::Imported imported = verbs::import_files(options);
        Either document = imported.timeline ? Either(hold(std::move(*imported.timeline)))
                                            : Either(hold(std::move(*imported.workload)));
        return std::pair(std::move(document), std::move(imported.notes));
      },
      "import");
}

// Without probes of LibTorch: those need its own program.
void bind_calibrate(nb::module_& module) {
  bind_verb<verbs::CalibrateOptions>(
      module, "calibrate", [](const auto& options, const auto& caller) {
        verbs::Calibrated found = verbs::calibrate(options, caller);
        return std::pair(hold(std::move(found.cluster)), std::move(found.notes));
      });
}

/// Answer, words, Workload and Cluster; the latter are empty if the answer was read from a file.
using PredictionsState = std::tuple<std::string, Words, std::string, std::string>;

// The inverse of answered_of().
PredictionsState state_of(const Predictions& p) {
  const auto& [words, asked] = *p.document;
  return {doc::to_json(asked.answer), words, asked.workload ? doc::to_json(*asked.workload) : "",
          asked.cluster ? doc::to_json(*asked.cluster) : ""};
}

Answered answered_of(const PredictionsState& state) {
  const auto& [answer, words, workload, cluster] = state;
  const std::string place = "a pickle";
  Answered read{words, {}};
  read.asked.answer = doc::predictions_from_json(answer, place);
  if (workload.empty()) return read;
  verbs::WhatifOptions options;
  VerbParser({"whatif"}, options).parse(words);
  read.asked.question = verbs::question_of(options);
  read.asked.workload = std::make_shared<doc::Workload>(doc::workload_from_json(workload, place));
  read.asked.cluster = std::make_shared<doc::Cluster>(doc::cluster_from_json(cluster, place));
  return read;
}

// Predictions know their question, so a Timeline or Plan of one of them can be made later. Those
// read from JSON do not.
void bind_whatif(nb::module_& module) {
  DocumentClass<Answered>(module, "Predictions")
      .gives("to_json", [](const Answered& a) { return doc::to_json(a.asked.answer); })
      .gives("to_text", [](const Answered& a) { return report::to_text(a.asked.answer); })
      .gives("to_csv", [](const Answered& a) { return report::to_csv(a.asked.answer); })
      .gives("to_html", [](const Answered& a) { return html_of(verbs::page_of(a.asked)); })
      .answers<std::string>("to_plot", "locale",
                            [](const Answered& a, const std::string& locale) {
                              return report::to_curves(a.asked.answer, locale);
                            })
      .answers<std::size_t>(
          "timeline", "index",
          [](const Answered& a, std::size_t at) { return hold(verbs::timeline_of(a.asked, at)); })
      .answers<std::size_t>(
          "plan", "index",
          [](const Answered& a, std::size_t at) { return hold(verbs::plan_of(a.asked, at)); })
      .def_static(
          "from_json",
          [](const std::string& text, const std::string& place) {
            Answered read;
            read.asked.answer = doc::predictions_from_json(text, place);
            return hold(std::move(read));
          },
          nb::arg("text"), nb::arg("place"), WithoutGil())
      .def("__getstate__", state_of)
      .def("__setstate__", [](Predictions& p, const PredictionsState& state) {
        new (&p) Predictions(hold(answered_of(state)));
      });
  module.def(
      "whatif",
      [](const Words& words, const NamedDocuments& documents, nb::handle progress) {
        return hold(Answered{words, run(verbs::WhatifOptions(), {"whatif"}, words, documents,
                                        progress, verbs::whatif)});
      },
      nb::arg("words"), nb::arg("documents"), nb::arg("progress").none());

  using Times = cost::CollectiveTimes;
  DocumentClass<Times>(module, "CollectiveTimes")
      .gives("to_json", [](const Times& times) { return report::to_json(times); })
      .gives("to_text", [](const Times& times) { return report::to_text(times); });
  module.def(
      "whatif_collective",
      [](const std::string& collective, Words words, const NamedDocuments& documents,
         nb::handle progress) {
        verbs::CollectiveOptions options;
        options.collective = parse_collective(collective);
        const std::string name(name_of(options.collective));
        return run(std::move(options), {"whatif", name}, std::move(words), documents, progress,
                   [](const auto& o, const auto& caller) {
                     return hold(verbs::whatif_collective(o, caller));
                   });
      },
      nb::arg("collective"), nb::arg("words"), nb::arg("documents"), nb::arg("progress").none());
  module.def("collectives", [] { return Words(kCollectiveNames.begin(), kCollectiveNames.end()); });
}

// A Plan shares its memory with the Planned that it came from.
void bind_plan(nb::module_& module) {
  DocumentClass<whatif::Planned>(module, "Planned")
      .gives("notes", [](const whatif::Planned& p) { return p.notes; })
      .gives("to_text",
             [](const whatif::Planned& p) {
               return report::text_of(
                   p.plan, [&](const doc::Task& task) { return whatif::seconds_of(p, task); });
             })
      .def("plan", [](const Held<whatif::Planned>& p) {
        return Held<doc::Plan>{std::shared_ptr<const doc::Plan>(p.document, &p.document->plan)};
      });
  bind_verb<verbs::PlanOptions>(module, "plan", [](const auto& options, const auto& caller) {
    return hold(verbs::plan(options, caller));
  });
}

void bind_advise(nb::module_& module) {
  DocumentClass<doc::Advice>(module, "Advice")
      .as_json(doc::advice_from_json)
      .gives("to_html",
             [](const doc::Advice& advice) {
               report::Inputs inputs;
               inputs.advice = {advice};
               return html_of(inputs);
             })
      .answers<bool>("to_text", "all", [](const doc::Advice& advice, bool all) {
        return report::to_text(advice, all);
      });
  bind_verb<verbs::AdviseOptions>(module, "advise", [](const auto& options, const auto& caller) {
    return hold(verbs::advise(options, caller));
  });
}

void bind_compare(nb::module_& module) {
  using compare::Comparison;
  DocumentClass<Comparison>(module, "Comparison")
      .gives("to_json", [](const Comparison& c) { return compare::to_json(c); })
      .answers<bool>("to_text", "tasks",
                     [](const Comparison& c, bool tasks) { return compare::to_text(c, tasks); });
  bind_verb<verbs::CompareOptions>(module, "compare", [](const auto& options, const auto& caller) {
    return hold(verbs::compare(options, caller));
  });
}

void bind_pages(nb::module_& module) {
  bind_verb<verbs::ReportOptions>(module, "report", [](const auto& options, const auto& caller) {
    return html_of(verbs::report(options, caller));
  });
  bind_verb<verbs::ExportOptions>(module, "export", [](const auto& options, const auto& caller) {
    return Held<doc::Timeline>{verbs::export_timeline(options, caller)};
  });
}

}  // namespace

void bind_verbs(nb::module_& module) {
  bind_explain(module);
  bind_import(module);
  bind_calibrate(module);
  bind_whatif(module);
  bind_plan(module);
  bind_advise(module);
  bind_compare(module);
  bind_pages(module);
  module.def("strategies_json", verbs::strategies_json);
  module.def("compressors_json", verbs::compressors_json);
  module.def("cost_models_json", verbs::cost_models_json);
  module.def("models_json", verbs::models_json);
  module.def("networks_json", verbs::networks_json);
}

}  // namespace linerate::python
