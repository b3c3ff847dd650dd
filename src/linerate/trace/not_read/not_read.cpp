// Formats that people have next to their traces, known by name so that the refusal says what to
// give instead.
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/trace/importer/importer.hpp"

namespace linerate::trace {
namespace {

/// A list of planes (field 1), which their names tell.
bool is_xplane(const Head& head) {
  return head.is_protobuf() &&
         head.contains_any({"/host:CPU", "/device:", "/host:metadata", "Task Environment"});
}

/// Asynchronous events that name collectives by number and communicator.
bool is_nccl_profiler(const Head& head) {
  return head.form() == HeadForm::list && head.has_phase('b') &&
         head.contains_any({"\"SeqNum\"", "\"CommHash\""});
}

/// torch_npu's trace_view.json is a list of Chrome events; a process of it has this name.
bool is_ascend(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '[' &&
         text.find("Ascend Hardware") != std::string_view::npos;
}

/// The output of a benchmark of collectives, which calibrate reads.
bool is_benchmark_log(const Head& head) {
  return (head.form() == HeadForm::object && bench_logs::kNcclTestsJson.matches(head.text())) ||
         (head.form() == HeadForm::text && bench_logs::is_collective_log(head.bytes()));
}

}  // namespace

std::vector<Importer> not_read_importers() {
  return {
      {.name = "benchmark log",
       .matches = is_benchmark_log,
       .advice = "a log of collectives, not of a training step; run linerate calibrate --from "
                 "{file} -o cluster.json"},
      {.name = "nsys database",
       .matches = [](const Head& head) { return head.starts_with("SQLite format 3"); },
       .advice = "an SQLite database, as nsys exports it, is not read; profile with torch.profiler "
                 "and give its Chrome trace"},
      {.name = "Horovod autotune log",
       .matches = [](const Head& head) { return head.starts_with("hierarchical_allreduce,"); },
       .advice = "a Horovod autotune log, which scores settings and holds no event; give the "
                 "timeline (HOROVOD_TIMELINE)"},
      {.name = "NCCL profiler trace",
       .matches = is_nccl_profiler,
       .advice = "the trace of NCCL's profiler plug-in is not read; give the PyTorch trace of the "
                 "same run"},
      {.name = "memory timeline",  // [[times], [sizes]]
       .matches = [](const Head& head) { return head.form() == HeadForm::nested_list; },
       .advice = "expected a list of events, found a list of lists such as PyTorch's memory "
                 "timeline; give the trace of export_chrome_trace"},
      {.name = "Git LFS pointer",
       .matches =
           [](const Head& head) { return head.starts_with("version https://git-lfs.github.com/"); },
       .advice = "a Git LFS pointer, not the file itself; fetch it with git lfs pull"},
      {.name = "XLA profile",
       .matches = is_xplane,
       .advice = "an XLA profile (xplane.pb of JAX or TensorFlow) is not read; linerate reads "
                 "PyTorch, Horovod and Chakra traces"},
      {.name =
           "Perfetto trace",  // one of the first packets (field 1) names the clocks or the producer
       .matches = [](const Head& head) { return head.is_protobuf() && head.contains("perfetto"); },
       .advice = "a binary trace of Perfetto is not read; give the PyTorch trace of the run"},
      {.name = "rocprofiler output",
       .matches =
           [](const Head& head) {
             return head.form() == HeadForm::object && head.contains("\"rocprofiler-sdk-tool\"");
           },
       .advice = "the output of rocprofiler is not read; profile with torch.profiler and give its "
                 "Chrome trace"},
      {.name = "Ascend trace",
       .matches = [](const Head& head) { return is_ascend(head.text()); },
       .advice = "a trace of Ascend's torch_npu is not read; write the job's per-gradient log, or "
                 "a linerate Timeline of it, and give that",
       .claims = is_ascend},
      {.name = "PyTorch host execution trace",
       .matches =
           [](const Head& head) {
             return head.form() == HeadForm::object && head.contains("\"nodes\"") &&
                    head.contains("\"schema\"");
           },
       .advice = "a host execution trace (ExecutionTraceObserver) has no durations and is not "
                 "read; give the Chrome trace of torch.profiler, recorded with "
                 "record_shapes=True"}};
}

}  // namespace linerate::trace
