// Many programs write Chrome traces. Without this check the trace of another profiler would be read
// as a PyTorch trace in which nothing happened. It runs only if no event was of PyTorch's kinds.
// The first mark of the list that is in the text names the program.
#include "linerate/trace/kineto/foreign_trace.hpp"

#include <algorithm>
#include <array>

namespace linerate::trace {
namespace {

/// Keys and categories that PyTorch writes and the reader passes over.
constexpr std::array<std::string_view, 7> kPyTorch = {"\"schemaVersion\"",
                                                      "\"distributedInfo\"",
                                                      "\"deviceProperties\"",
                                                      "\"python_function\"",
                                                      "\"cpu_instant_event\"",
                                                      "\"fwdbwd\"",
                                                      "\"ac2g\""};

struct Line {
  std::string_view mark, advice;
};
constexpr std::string_view kXla =
    "a trace of XLA (JAX or TensorFlow) is not read; linerate reads PyTorch, Horovod and Chakra "
    "traces";
constexpr std::string_view kTensorFlow =
    "a TensorFlow timeline is not read; linerate reads PyTorch, Horovod and Chakra traces";
// The surer marks come first.
constexpr std::array kForeign = {
    Line{"\"rocprofiler-sdk-tool\"",
         "the JSON of rocprofiler is not read; profile with torch.profiler and give its trace"},
    Line{"\"BeginNs\"",
         "the JSON of rocprof is not read; profile with torch.profiler and give its trace"},
    Line{"\"hlo_op\"", kXla},
    Line{"\"hlo_module\"", kXla},
    Line{"XLA Ops", kXla},
    Line{"/device:TPU", kXla},
    Line{"/job:", kTensorFlow},
    Line{"tf_op", kTensorFlow},
    Line{"/host:CPU",
         "a trace of TensorFlow's or JAX's profiler is not read; linerate reads PyTorch, Horovod "
         "and Chakra traces"},
    Line{"/device:", kTensorFlow},
    Line{"\"DataFlow\"", kTensorFlow},
    Line{"\"transport\"",
         "a page that linerate export wrote for ui.perfetto.dev; give the "
         "Timeline or the traces that it was made from"},
    Line{"perfetto", "a trace of Perfetto's own is not read; give the PyTorch trace of the run"},
    Line{"\"systemTraceEvents\"",
         "a system trace (ftrace, Perfetto) is not read; give the PyTorch trace of the run"},
    Line{"traceconv", "a trace of Perfetto's own is not read; give the PyTorch trace of the run"}};

}  // namespace

std::optional<std::string> foreign_trace(std::string_view text) {
  const auto has = [text](std::string_view mark) {
    return text.find(mark) != std::string_view::npos;
  };
  if (std::any_of(kPyTorch.begin(), kPyTorch.end(), has)) return std::nullopt;
  for (const Line& l : kForeign)
    if (has(l.mark)) return std::string(l.advice);
  return "a Chrome trace of another program, because none of its events is of a kind that PyTorch "
         "writes (cpu_op, kernel, gpu_memcpy, user_annotation); give the trace of "
         "export_chrome_trace";
}

}  // namespace linerate::trace
