// Ctrl-C during long work. Python runs signal handlers only in the main thread and only between its
// own instructions, so a call into C++ would be deaf for minutes. Here the work runs in a thread of
// its own, and the calling thread waits for it. Ten times a second it takes the GIL and looks for
// signals, and it tells the progress meanwhile.
//
// An example: the work takes 60 s, and Ctrl-C comes after 5.23 s. At 5.3 s the look raises
// KeyboardInterrupt. The watcher keeps the exception and requests a stop. The work notices at its
// next check, perhaps at 5.31 s, and throws. The thread is joined, and the caller raises
// KeyboardInterrupt and not the work's own exception.
#include "linerate/python/interruptible.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "linerate/core/stop.hpp"

namespace linerate::python {
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

  void finish(std::exception_ptr what) {
    const std::lock_guard lock(mutex);
    done = true;
    thrown = std::move(what);
    changed.notify_one();
  }
  /// Waits up to kLook for the end. Returns whether the work is over. `line` gets the latest
  /// progress, empty if there is nothing new.
  bool wait(std::string& line) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kLook, [this] { return done; });
    line = std::exchange(latest, {});
    return done;
  }
};

/// Looks for signals and hands out progress. Call it with the GIL. Throws nb::python_error for what
/// a signal handler or `progress` raised.
void look(const std::string& line, nb::handle progress) {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (!line.empty() && !progress.is_none()) progress(line);
}

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
    try {
      look(line, progress);
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
    talk.finish(std::move(thrown));
  });
  std::exception_ptr raised;
  {
    raised = watch(talk, stop, progress);
    const nb::gil_scoped_release released;
    worker.join();
  }
  if (raised) std::rethrow_exception(raised);
  if (talk.thrown) std::rethrow_exception(talk.thrown);
}

}  // namespace linerate::python
