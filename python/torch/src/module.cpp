// linerate.torch._core: what the Python package calls. Nothing is decided here.
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "advice.hpp"
#include "kfac.hpp"
#include "linerate/comm/c10d/c10d_world.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/comm/fingerprint.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/in_python.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "reports.hpp"
#include "world.hpp"

namespace linerate::python {
namespace {

using comm::Communicator;
using torch_adapter::DataParallel;
using torch_adapter::DataParallelOptions;
using torch_adapter::NamedTensors;
using Unlocked = py::call_guard<py::gil_scoped_release>;

/// While it lives torch.compile leaves Python's frames alone: updates run inside of passes, which
/// may be compiled. Python's own way, without a frame that could be compiled itself.
class Uncompiled {
 public:
  Uncompiled() : set_(py::module_::import("torch._C._dynamo.eval_frame").attr("set_eval_frame")) {
    before_ = set_(py::none());
  }
  ~Uncompiled() { set_(before_); }
  Uncompiled(const Uncompiled&) = delete;
  Uncompiled& operator=(const Uncompiled&) = delete;

 private:
  py::object set_, before_;
};

/// A Python optimizer whose step is taken apart: calls capture(parts), update(which parts, their
/// gradients) and release() of `rule`.
class PythonUpdates final : public torch_adapter::PartialUpdates {
 public:
  explicit PythonUpdates(py::object rule) : rule_(std::move(rule)) {}
  ~PythonUpdates() override {
    const py::gil_scoped_acquire gil;
    rule_ = {};
  }
  void capture(const std::vector<std::vector<at::Tensor>>& parts) override {
    const py::gil_scoped_acquire gil;
    const Uncompiled uncompiled;
    rule_.attr("capture")(parts);
  }
  void update(const std::vector<std::size_t>& which,
              const std::vector<std::vector<at::Tensor>>& gradients) override {
    const py::gil_scoped_acquire gil;
    const Uncompiled uncompiled;
    py::list lists;
    for (const std::vector<at::Tensor>& of_part : gradients) {
      py::list list;
      for (const at::Tensor& g : of_part)
        list.append(g.defined() ? py::cast(g) : py::object(py::none()));
      lists.append(list);
    }
    rule_.attr("update")(which, lists);
  }
  bool is_shorter_together() const override { return true; }  // one call of the optimizer's step
  void release() override {
    const py::gil_scoped_acquire gil;
    rule_.attr("release")();
  }

 private:
  py::object rule_;
};

/// The backward pass of a scaled loss that is under way, and the number of its scaler
/// (_scaling.py).
class ScaledPass {
 public:
  struct Now {
    std::optional<double> scale;
    std::int64_t scaler = 0;
  };
  void set(std::optional<double> scale, std::int64_t scaler) {
    const std::lock_guard lock(mutex_);
    now_ = {scale, scaler};
  }
  Now now() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }

 private:
  mutable std::mutex mutex_;  // hooks run on autograd's threads
  Now now_;
};
ScaledPass& scaled_pass() {
  static ScaledPass pass;
  return pass;
}

/// A DataParallel that Python closes before its communicator, and what it records.
class Parallel {
 public:
  Parallel(const NamedTensors& parameters, const NamedTensors& buffers,
           std::shared_ptr<World> world, DataParallelOptions options, bool records,
           std::shared_ptr<PythonKfac> kfac)
      : world_(std::move(world)), kfac_(std::move(kfac)) {
    if (kfac_) options.preconditioner = kfac_->kfac.get();
    if (records) {
      recorder_ = std::make_unique<exec::Recorder>(world_->get(), exec::agree_origin(world_->get()),
                                                   "trained");
      recorder_->keep(false);
      options.recorder = recorder_.get();
    }
    options.scale_of_pass = [this] {
      const ScaledPass::Now now = scaled_pass().now();
      if (now.scale) scaler_seen_ = now.scaler;
      return now.scale;
    };
    parallel_ = std::make_unique<DataParallel>(parameters, buffers, world_->get(), options);
  }
  DataParallel& get() const {
    if (!parallel_) throw UsageError("the DataParallel has been closed");
    return *parallel_;
  }
  bool is_open() const { return parallel_ != nullptr; }
  void close() {
    no_sync_.clear();
    parallel_.reset();
  }
  void enter_no_sync() { no_sync_.push_back(std::make_unique<DataParallel::NoSync>(get())); }
  void exit_no_sync() {
    if (!no_sync_.empty()) no_sync_.pop_back();  // else it was closed inside
  }
  /// The number of the last scaler under whose loss a gradient came; 0: none.
  std::int64_t scaler_seen() const { return scaler_seen_; }
  exec::Recorder* recorder() const { return recorder_.get(); }
  World& world() const { return *world_; }

 private:
  std::shared_ptr<World> world_;
  std::shared_ptr<PythonKfac> kfac_;
  std::unique_ptr<exec::Recorder> recorder_;
  std::atomic<std::int64_t> scaler_seen_ = 0;
  std::unique_ptr<DataParallel> parallel_;
  std::vector<std::unique_ptr<DataParallel::NoSync>> no_sync_;
};

/// A method of the DataParallel as one of Parallel.
template <typename Result, typename... Arguments>
auto of_open(Result (DataParallel::*method)(Arguments...)) {
  return [method](Parallel& p, Arguments... arguments) -> Result {
    return (p.get().*method)(std::forward<Arguments>(arguments)...);
  };
}

/// A method of the Parallel's recorder, if it has one.
template <typename... Arguments>
auto of_recorder(void (exec::Recorder::*method)(Arguments...)) {
  return [method](Parallel& p, Arguments... arguments) {
    if (p.recorder()) (p.recorder()->*method)(std::forward<Arguments>(arguments)...);
  };
}

/// The texts that ask() gives without the GIL.
template <typename Ask>
py::list bytes_of(Ask ask) {
  std::vector<std::string> texts;
  {
    const py::gil_scoped_release unlocked;
    texts = ask();
  }
  py::list list;
  for (const std::string& text : texts) list.append(py::bytes(text));
  return list;
}

void register_errors(py::module_& m) {
  const auto kind = [&m](const char* name, const py::object& bases) {
    PyObject* const made =
        PyErr_NewException((std::string("linerate.torch.") + name).c_str(), bases.ptr(), nullptr);
    m.attr(name) = py::handle(made);
    return made;
  };
  static PyObject* const base =
      kind("Error", py::reinterpret_borrow<py::object>(PyExc_RuntimeError));
  const py::object bases = py::make_tuple(py::handle(base), py::handle(PyExc_ValueError));
  static PyObject* const usage = kind("UsageError", bases);
  static PyObject* const input = kind("InputError", bases);
  static PyObject* const lost = kind("CommError", py::make_tuple(py::handle(base)));
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& e) {
      PyObject* const raised = dynamic_cast<const UsageError*>(&e)   ? usage
                               : dynamic_cast<const InputError*>(&e) ? input
                               : dynamic_cast<const CommError*>(&e)  ? lost
                                                                     : base;
      PyErr_SetString(raised, in_python(e.what()).c_str());
    }
  });
}

}  // namespace
}  // namespace linerate::python

PYBIND11_MODULE(_core, m) {
  using namespace linerate;
  using namespace linerate::python;
  namespace ta = torch_adapter;
  register_errors(m);
  add_reports(m);
  add_kfac(m);
  add_advice(m);
  log::set_sink([](log::Level level, const std::string& message) {
    if (level == log::Level::warning)
      std::fprintf(stderr, "linerate: warning: %s\n", in_python(message).c_str());
  });

  py::class_<World, std::shared_ptr<World>>(m, "World")
      .def_property_readonly("rank", [](const World& w) { return w.get().rank(); })
      .def_property_readonly("size", [](const World& w) { return w.get().size(); })
      .def_property_readonly("transport", [](const World& w) { return w.get().transport(); })
      .def("sum", &World::sum, Unlocked())
      .def("broadcast", &World::broadcast, Unlocked())
      .def("gather_texts",
           [](const World& w, const std::string& text, const std::string& name) {
             return bytes_of([&] { return comm::gather_texts(w.get(), text, name); });
           })
      .def(
          "require_no_problem",
          [](const World& w, const std::string& who, const std::string& problem) {
            comm::require_no_problem(w.get(), who, problem);
          },
          Unlocked())
      .def(
          "require_same",
          [](const World& w, const std::string& what, const std::vector<std::string>& lines) {
            comm::require_same(w.get(), what, lines);
          },
          Unlocked())
      .def(
          "abort", [](const World& w, const std::string& reason) { w.get().abort(reason); },
          Unlocked())
      .def("traffic",
           [](const World& w) {
             const comm::Traffic t = w.get().traffic();
             return std::make_pair(t.sent.value, t.received.value);
           })
      .def("close", &World::close, Unlocked());

  m.def(
      "world_of_group",
      [](const std::string& group, double timeout_s, bool checked) {
        return std::make_shared<World>(
            comm::make_world_of_group(group, {.timeout = Duration{timeout_s}, .checked = checked}));
      },
      Unlocked());
  m.def(
      "mpi_world",
      [](double timeout_s, bool checked) {
        return std::make_shared<World>(
            comm::make_world({.checked = checked, .timeout = Duration{timeout_s}}));
      },
      Unlocked());
  m.def("have_mpi", &comm::have_mpi);
  m.def("set_link", [](const std::optional<std::string>& rate) {
    try {
      comm::set_link(rate ? std::optional(parse_rate(*rate)) : std::nullopt);
    } catch (const UsageError& e) {
      throw UsageError(std::string("init: link=: ") + e.what());
    }
  });
  m.def("preconditions", [](const std::string& strategy) {
    return plan::kfac_of(doc::parse_strategy(strategy)).has_value();
  });
  py::enum_<compress::StepsBy>(m, "StepsBy")
      .value("gradients", compress::StepsBy::gradients)
      .value("sum", compress::StepsBy::sum)
      .value("average", compress::StepsBy::average)
      .value("adams", compress::StepsBy::adams);
  m.def("compresses", [](const std::string& strategy) {
    const doc::Strategy parsed = plan::with_exchange(doc::parse_strategy(strategy));
    return std::any_of(parsed.extras.begin(), parsed.extras.end(), [](const doc::Component& extra) {
      return !plan::compressors_in(extra).empty();
    });
  });
  m.def("exchanges", [] { return plan::exchanges().names(); });
  m.def("compressors", [] { return compress::compressors().names(); });
  m.def("set_scaled_pass",
        [](std::optional<double> scale, std::int64_t scaler) { scaled_pass().set(scale, scaler); });

  py::class_<Parallel>(m, "Parallel")
      .def(py::init([](const ta::NamedTensors& parameters, const ta::NamedTensors& buffers,
                       std::shared_ptr<World> world, std::string strategy,
                       const std::string& buffer_policy, const std::optional<std::string>& cluster,
                       int measured_steps, double replan_above, double most_above_ddp,
                       std::uint64_t seed, std::string name, bool records,
                       std::shared_ptr<PythonKfac> kfac, std::string device_group) {
             DataParallelOptions options{.strategy = std::move(strategy),
                                         .buffers = buffer_policy == "keep"
                                                        ? ta::BufferPolicy::keep
                                                        : ta::BufferPolicy::broadcast,
                                         .measured_steps = measured_steps,
                                         .replan_above = replan_above,
                                         .most_above_ddp = most_above_ddp,
                                         .seed = seed,
                                         .device_group = std::move(device_group),
                                         .name = std::move(name)};
             if (cluster) options.cluster = doc::cluster_from_json(*cluster, "cluster=");
             const py::gil_scoped_release unlocked;
             return std::make_unique<Parallel>(parameters, buffers, std::move(world),
                                               std::move(options), records, std::move(kfac));
           }),
           py::arg("parameters"), py::arg("buffers"), py::arg("world"), py::arg("strategy"),
           py::kw_only(), py::arg("buffer_policy") = "broadcast", py::arg("cluster") = py::none(),
           py::arg("measured_steps") = DataParallelOptions().measured_steps,
           py::arg("replan_above") = DataParallelOptions().replan_above,
           py::arg("most_above_ddp") = DataParallelOptions().most_above_ddp,
           py::arg("seed") = DataParallelOptions().seed, py::arg("name") = "",
           py::arg("records") = false, py::arg("kfac") = py::none(), py::arg("device_group") = "")
      .def("close", &Parallel::close, Unlocked())
      .def("is_open", &Parallel::is_open)
      .def("finish", of_open(&DataParallel::finish), Unlocked())
      .def("set_tensors", of_open(&DataParallel::set_tensors), Unlocked())
      .def(
          "expect",
          [](Parallel& p, std::string name, std::uintptr_t identity, std::vector<at::Tensor> holds,
             compress::StepsBy steps_by) {
            return p.get().expect({std::move(name), identity, std::move(holds), steps_by});
          },
          Unlocked())
      .def("step_in_parts",
           [](Parallel& p, py::object rule) {
             auto updates = std::make_shared<PythonUpdates>(std::move(rule));
             const py::gil_scoped_release unlocked;
             return p.get().step(std::move(updates));
           })
      .def("skip_step", of_open(&DataParallel::skip_step), Unlocked())
      .def("settle", of_open(&DataParallel::settle), Unlocked())
      .def("refuse_step", of_open(&DataParallel::refuse_step), Unlocked())
      .def("expect_no_backward", [](Parallel& p) { p.get().expect_no_backward(); })
      .def("set_batch", of_open(&DataParallel::set_batch), Unlocked())
      .def("set_loss_scale", of_open(&DataParallel::set_loss_scale), Unlocked())
      .def(
          "knows_loss_scale", [](Parallel& p) { return p.get().knows_loss_scale(); }, Unlocked())
      .def("forget_cleared_scale", of_open(&DataParallel::forget_cleared_scale), Unlocked())
      .def("scaler_seen", &Parallel::scaler_seen)
      .def("enter_no_sync", &Parallel::enter_no_sync)
      .def("exit_no_sync", &Parallel::exit_no_sync)
      .def("renew_hooks", of_open(&DataParallel::renew_hooks), Unlocked())
      .def("gradients_may_follow", [](Parallel& p) { return p.get().gradients_may_follow(); })
      .def("gradients_came", [](Parallel& p) { return p.get().gradients_came(); })
      .def("updates_pending", [](Parallel& p) { return p.get().updates_pending(); })
      .def("plan_is_final", [](Parallel& p) { return p.get().plan_is_final(); })
      .def("measured_plans", [](Parallel& p) { return p.get().measured_plans(); })
      .def("trial_in_words", [](Parallel& p) { return p.get().trial_in_words(); })
      .def("strategy", [](Parallel& p) { return p.get().plan().strategy; })
      .def("plan_json", [](Parallel& p) { return doc::to_json(p.get().plan()); })
      .def("workload_json", [](Parallel& p) { return doc::to_json(p.get().workload()); })
      .def("require_same_weights", of_open(&DataParallel::require_same_weights), Unlocked())
      .def("compression_state",
           [](Parallel& p) { return bytes_of([&p] { return p.get().compression_state(); }); })
      .def("load_compression_state",
           [](Parallel& p, const std::vector<py::bytes>& parts, const std::string& place) {
             std::vector<std::string> texts(parts.begin(), parts.end());
             const py::gil_scoped_release unlocked;
             p.get().load_compression_state(texts, place);
           })
      .def(
          "curvature_state", [](Parallel& p) { return ta::to_tensors(p.get().curvature_state()); },
          Unlocked())
      .def(
          "load_curvature_state",
          [](Parallel& p, const ta::NamedTensors& tensors) {
            p.get().load_curvature_state(ta::kfac_state_of(tensors, "exchange state"));
          },
          Unlocked())
      .def("record", of_recorder(&exec::Recorder::keep))
      .def("forget_recorded", of_recorder(&exec::Recorder::forget))
      .def("moment", [](Parallel& p) { return p.recorder() ? p.recorder()->now() : steady_ns(); })
      .def("add_compute",
           [](Parallel& p, bool backward, std::int64_t start_ns, std::int64_t end_ns) {
             if (p.recorder())
               p.recorder()->add(
                   {.kind = backward ? doc::TaskKind::backward : doc::TaskKind::forward,
                    .resource = doc::Resource::compute,
                    .start_ns = start_ns,
                    .end_ns = end_ns});
           })
      .def("begin_recorded_step", of_recorder(&exec::Recorder::begin_step))
      .def("add_step", of_recorder(&exec::Recorder::add_step))
      .def("timeline_json", [](Parallel& p) {
        if (!p.recorder()) return std::string();
        const py::gil_scoped_release unlocked;
        doc::Timeline mine = p.recorder()->timeline();
        mine.strategy = p.get().plan().strategy;
        const doc::Timeline whole = exec::gather_timeline(p.world().get(), mine);
        return p.world().get().rank() == 0 ? doc::to_json(whole) : std::string();
      });
}
