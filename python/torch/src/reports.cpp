#include "reports.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "linerate/kfac/kfac_report.hpp"
#include "linerate/torch_adapter/options.hpp"

namespace linerate::python {
namespace {

using torch_adapter::KfacStep;
using torch_adapter::StepReport;

/// An attribute: what help() says of it, and how it is read and put back.
template <typename Report>
struct Field {
  const char* name;
  const char* says;
  std::function<py::object(const Report&)> get;
  std::function<void(Report&, const py::object&)> set;
};

template <typename Report, typename Value>
Field<Report> field(const char* name, Value Report::*member, const char* says) {
  return {name, says, [member](const Report& r) { return py::cast(r.*member); },
          [member](Report& r, const py::object& value) { r.*member = value.cast<Value>(); }};
}

double held_s(const StepReport& r) {
  double s = 0;
  for (const torch_adapter::HeldSpan& h : r.held)
    s += static_cast<double>(h.update_ns - h.start_ns) * 1e-9;
  return s;
}

std::vector<Field<StepReport>> fields_of_a_step() {
  return {
      field("variant", &StepReport::variant,
            "str: which of the Plan's step graphs ran, as dp.plan()[\"variants\"] names them."),
      field(
          "exposed_s", &StepReport::exposed_s,
          "float, seconds: communication that was not hidden, from the call of step() or finish() "
          "until every gradient was there. With \"dear\": until the ranks agreed that the step "
          "counts, and what the last forward pass waited for updates."),
      field("copy_s", &StepReport::copy_s,
            "float, seconds: the backward pass was held up by hooks that copied gradients into "
            "buckets."),
      {"held_s",
       "float, seconds: the passes since the report before waited for gradients of the last step, "
       "with \"dear\"; 0 elsewhere.",
       [](const StepReport& r) { return py::cast(held_s(r)); },
       [](StepReport& r, const py::object& value) {
         r.held = {{0, static_cast<std::int64_t>(value.cast<double>() * 1e9 + 0.5), 0}};
       }},
      field("bytes", &StepReport::bytes,
            "int, bytes: the gradients that were exchanged, in the types in which they travelled, "
            "compressed or not."),
      field("unused_here", &StepReport::unused_here,
            "int: parameters that got no gradient on this rank; they count as zero."),
      field("unused_everywhere", &StepReport::unused_everywhere,
            "int: parameters that got no gradient on any rank; their .grad was left as it was."),
      field("rounds", &StepReport::rounds,
            "int: exchanges; above 1 if gradients changed after they were sent."),
      field("infinite", &StepReport::infinite,
            "bool: the strategy compresses, and a gradient of some rank held an infinity, a NaN or "
            "a magnitude above 2^64: the step was skipped on all ranks."),
      field("late_infinite", &StepReport::late_infinite,
            "bool, steps enqueued on a device (device_group=) under a compressor or K-FAC: the "
            "means of "
            "an earlier step held an infinity or a NaN; they were taken for zero on all ranks, and "
            "that "
            "step counted."),
      field("host_waits", &StepReport::host_waits,
            "int, steps enqueued on a device: how often the host waited for it."),
  };
}

std::vector<Field<KfacStep>> fields_of_kfac() {
  return {
      field("step", &KfacStep::step, "int: number of the step, from 0."),
      field("factors", &KfacStep::factors, "bool: the averages of the factors were updated."),
      field("inverses", &KfacStep::inverses, "bool: inverses were computed anew."),
      field("skipped", &KfacStep::skipped,
            "bool: a gradient was not finite; every .grad is None, the optimizer moves nothing, "
            "factors and inverses are as they were."),
      field("q", &KfacStep::q,
            "float: inner product of the direction and the gradient; NaN on a device while it is "
            "not known."),
      field("nu", &KfacStep::nu,
            "float, 0 to 1: what the KL clip multiplied the update by; NaN on a device while it is "
            "not known."),
      field("damping", &KfacStep::damping, "float: the damping of this step."),
      field("failures", &KfacStep::failures,
            "list of str: factors that were dropped and inverses that were kept, and why."),
      field("plain", &KfacStep::plain,
            "list of str: layers with a gradient and no inverse yet; their gradient stays as it "
            "is."),
  };
}

template <typename Report>
void add_report(py::module_& m, const char* name, const char* says,
                const std::vector<Field<Report>>& fields) {
  py::class_<Report> report(m, name, says);
  for (const Field<Report>& one : fields) report.def_property_readonly(one.name, one.get, one.says);
  const auto values = [fields](const Report& r) {
    py::dict all;
    for (const Field<Report>& one : fields) all[one.name] = one.get(r);
    return all;
  };
  report.def("to_dict", values, "Its fields by name.")
      .def("__repr__",
           [values, name](const Report& r) {
             std::string text;
             for (const auto& [key, value] : values(r))
               text += (text.empty() ? "" : ", ") + std::string(py::str(key)) + "=" +
                       std::string(py::repr(value));
             return name + ("(" + text) + ")";
           })
      .def("_repr_html_",
           [values](const Report& r) {
             const py::object escape = py::module_::import("html").attr("escape");
             std::string rows;
             for (const auto& [key, value] : values(r))
               rows += "<tr><td>" + std::string(py::str(key)) + "</td><td>" +
                       std::string(py::str(escape(py::str(value)))) + "</td></tr>";
             return "<table><tbody>" + rows + "</tbody></table>";
           })
      .def("__eq__",
           [values](const Report& a, const py::object& other) {
             return py::isinstance<Report>(other) &&
                    values(a).equal(values(other.cast<const Report&>()));
           })
      .def(py::pickle(values, [fields](const py::dict& state) {
        Report r;
        for (const Field<Report>& one : fields) one.set(r, state[one.name]);
        return r;
      }));
  report.attr("__hash__") = py::none();
  report.attr("__module__") = "linerate.torch";
}

}  // namespace

void add_reports(py::module_& m) {
  add_report<StepReport>(m, "StepReport", "What step() or finish() did on this rank.",
                         fields_of_a_step());
  add_report<KfacStep>(m, "KfacStep", "What one step of K-FAC did on this rank.", fields_of_kfac());
}

}  // namespace linerate::python
