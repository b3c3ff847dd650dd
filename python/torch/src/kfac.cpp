// K-FAC of Python's layers: linerate.torch._core.Kfac.
#include "kfac.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/kfac/kfac_options.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/kfac/preconditioner.hpp"
#include "linerate/plan/kfac/kfac.hpp"

namespace linerate::python {
namespace {

using torch_adapter::KFAC;
using torch_adapter::KfacOptions;
using torch_adapter::LayerKind;
using torch_adapter::LayerSpec;
using torch_adapter::LossAverage;
using torch_adapter::LossKind;
using torch_adapter::LossView;
using torch_adapter::OutputLayout;
using Unlocked = py::call_guard<py::gil_scoped_release>;

LayerKind kind_of(const std::string& name) {
  if (name == "linear" || name == "transposed") return LayerKind::linear;
  if (name == "conv") return LayerKind::conv;
  if (name == "embedding") return LayerKind::embedding;
  if (name == "norm") return LayerKind::norm;
  throw InternalError("a kind of layer that is not known: " + name);
}

/// ask(object), asked on whatever thread, without the GIL.
template <typename T>
std::function<T()> asked_of(py::object object, T (*ask)(const py::object&)) {
  const std::shared_ptr<py::object> held(new py::object(std::move(object)), [](py::object* o) {
    const py::gil_scoped_acquire gil;
    delete o;
  });
  return [held, ask] {
    const py::gil_scoped_acquire gil;
    return ask(*held);
  };
}

/// The module's own flag, as it is when an operator uses the layer.
bool is_training(const py::object& module) { return module.attr("training").cast<bool>(); }

double number_of(const py::object& function) { return function().cast<double>(); }

/// A GradScaler halves its scale after each overflow: this many in a row are none of K-FAC's.
constexpr int kScalersFailures = 64;

LossAverage average_of(const std::string& over) {
  using Over = LossAverage::Over;
  if (over == "batch") return {.over = Over::batch};
  if (over == "batch_positions") return {.over = Over::batch_positions};
  if (over == "batch_positions_features") return {.over = Over::batch_positions_features};
  if (over == "sum") return {.over = Over::sum};
  throw UsageError(
      "KFAC: loss_average=: expected batch, batch_positions, batch_positions_features or sum, "
      "found \"" +
      over + "\"");
}

LossKind loss_of(const std::string& name) {
  if (name == "softmax_cross_entropy") return LossKind::softmax_cross_entropy;
  if (name == "binary_cross_entropy") return LossKind::binary_cross_entropy;
  if (name == "squared_error") return LossKind::squared_error;
  if (name == "half_squared_error") return LossKind::half_squared_error;
  throw UsageError(
      "KFAC: loss=: expected softmax_cross_entropy, binary_cross_entropy, squared_error or "
      "half_squared_error, found \"" +
      name + "\"");
}

std::optional<OutputLayout> layout_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  if (*name == "classes_last") return OutputLayout::classes_last;
  if (*name == "classes_second") return OutputLayout::classes_second;
  throw UsageError(
      "KFAC: layout=: expected classes_last, of an output [B, T, V], or classes_second, of one of "
      "[N, "
      "C, positions...], found \"" +
      *name + "\"");
}

KfacOptions options_of(const plan::Kfac& kfac, const std::string& loss_average,
                       std::vector<std::string> skip, std::function<double()> rate,
                       std::function<double()> scale, std::uint64_t seed,
                       std::optional<std::int64_t> accumulate) {
  KfacOptions options = torch_adapter::planned_options(kfac);
  if (accumulate && kfac.accumulate && accumulate != kfac.accumulate)
    throw UsageError("KFAC: accumulate=" + std::to_string(*accumulate) +
                     ", the strategy says accumulate=" + std::to_string(*kfac.accumulate) +
                     ": say it in one of them, or the same in both");
  if (accumulate) options.accumulate = static_cast<double>(*accumulate);
  options.loss_average = average_of(loss_average);
  options.learning_rate = [rate = std::move(rate)](std::int64_t) { return rate(); };
  if (scale) {
    options.loss_scale = [scale](std::int64_t) { return scale(); };
    options.max_failures = kScalersFailures;
  }
  options.seed = seed;
  options.skip = std::move(skip);
  return options;
}

}  // namespace

void add_kfac(py::module_& m) {
  py::class_<PythonKfac, std::shared_ptr<PythonKfac>>(m, "Kfac")
      .def(py::init(
          [](const std::vector<std::tuple<std::string, std::string, at::Tensor,
                                          std::optional<at::Tensor>, int, py::object>>& layers,
             const std::vector<at::Tensor>& parameters, const std::string& strategy,
             const std::string& loss_average, std::vector<std::string> skip, std::uint64_t seed,
             py::object scale, std::optional<std::int64_t> accumulate, bool shared) {
            auto made = std::make_shared<PythonKfac>();
            std::vector<LayerSpec> specs;
            for (const auto& [name, kind, weight, bias, groups, module] : layers)
              specs.push_back({.name = name,
                               .kind = kind_of(kind),
                               .weight = weight,
                               .bias = bias.value_or(at::Tensor()),
                               .groups = groups,
                               .transposed = kind == "transposed",
                               .trains = asked_of(module, is_training)});
            const std::optional<plan::Kfac> kfac = plan::kfac_of(doc::parse_strategy(strategy));
            if (!kfac) throw UsageError("strategy " + strategy + ": no kfac in it");
            auto* const own = made.get();
            const std::function<double()> scaled =
                scale.is_none() ? std::function<double()>() : asked_of(std::move(scale), number_of);
            KfacOptions options = options_of(
                *kfac, loss_average, std::move(skip), [own] { return own->rate.load(); }, scaled,
                seed, accumulate);
            if (scaled && shared)
              options.gradient_scale = [scaled](std::int64_t) { return scaled(); };
            made->kfac = std::make_unique<KFAC>(specs, parameters, std::move(options));
            return made;
          }))
      .def(
          "step", [](PythonKfac& k) { return k.kfac->step(); }, Unlocked())
      .def("set_rate", [](PythonKfac& k, double rate) { k.rate = rate; })
      .def(
          "set_loss_terms", [](PythonKfac& k, double terms) { k.kfac->set_loss_terms(terms); },
          Unlocked())
      .def(
          "loss_of",
          [](PythonKfac& k, const at::Tensor& output, const std::optional<at::Tensor>& target,
             std::int64_t ignore_index, const std::optional<std::string>& layout) {
            const LossView view{.ignore_index = ignore_index, .layout = layout_of(layout)};
            k.kfac->loss_of(output, target.value_or(at::Tensor()), view);
          },
          Unlocked())
      .def(
          "sample_fisher",
          [](PythonKfac& k, const at::Tensor& output, const std::string& loss,
             std::int64_t first_sample) {
            k.kfac->sample_fisher(output, loss_of(loss), first_sample);
          },
          Unlocked())
      .def("layers",
           [](const PythonKfac& k) {
             py::list list;
             for (const auto& layer : k.kfac->registration_report())
               list.append(py::make_tuple(layer.name, layer.kind, layer.a, layer.g, layer.reason));
             return list;
           })
      .def(
          "state", [](const PythonKfac& k) { return torch_adapter::to_tensors(k.kfac->save()); },
          Unlocked())
      .def(
          "load_state",
          [](PythonKfac& k, const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
            k.kfac->load(torch_adapter::kfac_state_of(tensors, "K-FAC state"));
          },
          Unlocked());
}

}  // namespace linerate::python
