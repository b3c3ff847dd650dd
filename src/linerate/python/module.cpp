// The extension linerate._core. It is private to the package linerate, which has the public names.
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/in_python.hpp"
#include "linerate/python/bindings.hpp"
#include "linerate/version.hpp"

NB_MODULE(_core, module) {
  nanobind::set_leak_warnings(false);  // what Python's caches keep to the end is no leak of ours
  module.attr("VERSION") = std::string(linerate::kVersion);
  linerate::python::bind_errors(module);
  linerate::python::bind_documents(module);
  linerate::python::bind_options(module);
  linerate::python::bind_verbs(module);
}

// Kinds of error: those of docs/errors.md, under the same names, with the command's text in the
// words of Python.

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

// Ctrl-C during long work. Python runs signal handlers only in the main thread and only between its
// own instructions, so a call into C++ would be deaf for minutes. Here the work runs in a thread of
// its own, and the calling thread waits for it. Ten times a second it takes the GIL and looks for
// signals, and it tells the progress meanwhile.
//
// An example: the work takes 60 s, and Ctrl-C comes after 5.23 s. At 5.3 s the look raises
// KeyboardInterrupt. The watcher keeps the exception and requests a stop. The work notices at its
// next check, perhaps at 5.31 s, and throws. The thread is joined, and the caller raises
// KeyboardInterrupt and not the work's own exception.

namespace {

namespace nb = nanobind;

constexpr std::chrono::milliseconds kLook{100};

/// The thread that works tells the thread that waits: a line of progress, and the end with an
/// exception or none. Only the latest line counts; lines in between are lost.
struct Talk {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::string latest;  // line of progress; empty: told already
  std::exception_ptr thrown;

  /// Waits up to kLook for the end. Returns whether the work is over. `line` gets the latest
  /// progress, empty if there is nothing new.
  bool wait(std::string& line) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kLook, [this] { return done; });
    line = std::exchange(latest, {});
    return done;
  }
};

/// Waits until the work is over. Returns the exception of Python that stopped it, or null. After
/// such an exception it still waits, as the work uses this frame's variables.
std::exception_ptr watch(Talk& talk, std::stop_source& stop, nb::handle progress) {
  std::exception_ptr raised;
  bool done = false;
  while (!done) {
    std::string line;
    {
      const nb::gil_scoped_release released;
      done = talk.wait(line);
    }
    if (raised) continue;
    try {  // looks for signals and hands out progress, with the GIL
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!line.empty() && !progress.is_none()) progress(line);
    } catch (...) {
      raised = std::current_exception();
      stop.request_stop();
    }
  }
  return raised;
}

}  // namespace

void run_interruptible(const std::function<void(const verbs::Caller&)>& work,
                       const verbs::Documents& documents, nb::handle progress) {
  Talk talk;
  std::stop_source stop;
  verbs::Caller caller{.documents = documents};
  caller.progress = [&talk](const std::string& line) {
    const std::lock_guard lock(talk.mutex);
    talk.latest = line;
  };
  std::thread worker([&, token = stop.get_token()] {
    const StopScope scope(token);
    std::exception_ptr thrown;
    try {
      work(caller);
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(talk.mutex);
    talk.done = true;
    talk.thrown = std::move(thrown);
    talk.changed.notify_one();
  });
  const std::exception_ptr raised = watch(talk, stop, progress);
  {
    const nb::gil_scoped_release released;
    worker.join();
  }
  if (raised) std::rethrow_exception(raised);
  if (talk.thrown) std::rethrow_exception(talk.thrown);
}

}  // namespace linerate::python
