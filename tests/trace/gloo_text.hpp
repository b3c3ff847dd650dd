// Traces of a CPU back end, written by hand: what a rank's host and Gloo's thread record.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "linerate/trace/importers.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/to_workload.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {

inline std::string host_event(const char* category, const std::string& name, double ts, double dur,
                              const std::string& args = "", int tid = 1) {
  return fmt::format(
      R"({{"ph":"X","cat":"{}","name":"{}","pid":1,"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
      category, name, tid, ts, dur, args);
}
inline std::string op(const std::string& name, double ts, double dur) {
  return host_event("cpu_op", name, ts, dur);
}
/// A gradient of so many floats, complete at `ts`, within its autograd node.
inline std::string gradient(long elements, double ts) {
  return op("autograd::engine::evaluate_function: AddmmBackward0", ts - 5, 4) + ",\n" +
         op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", ts - 1, 3) +
         ",\n" +
         host_event("cpu_op", "torch::autograd::AccumulateGrad", ts, 1,
                    fmt::format(R"("Input Dims":[[{}]],"Input type":["float"])", elements));
}
/// The same recorded without shapes.
inline std::string gradient(double ts) {
  return op("autograd::engine::evaluate_function: AddmmBackward0", ts - 5, 4) + ",\n" +
         op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", ts - 1, 3) +
         ",\n" + op("torch::autograd::AccumulateGrad", ts, 1);
}
inline std::string optimizer_step(double ts) {
  return host_event("user_annotation", "Optimizer.step#SGD.step", ts, 10);
}
/// An all-reduce of a CPU back end: its call and the annotation on the back end's thread.
inline std::string gloo_all_reduce(long elements, double call, double ts, double dur,
                                   const std::string& type = "float", int tid = 50) {
  return host_event("cpu_op", "c10d::allreduce_", call, 5,
                    fmt::format(R"("Input Dims":[[[{}]],[],[]],"Input type":["TensorList","",""])",
                                elements)) +
         ",\n" +
         host_event("user_annotation", "gloo:all_reduce", ts, dur,
                    fmt::format(R"("Input Dims":[[{}]],"Input type":["{}"])", elements, type), tid);
}
inline std::string gloo_trace(int rank, int world, const std::vector<std::string>& events) {
  return fmt::format(
      R"({{"schemaVersion":1,"distributedInfo":{{"backend":"gloo","rank":{},"world_size":{}}},)"
      R"("traceEvents":[{}]}})",
      rank, world, fmt::join(events, ",\n"));
}

struct ImportedJob {
  doc::Workload workload;
  std::vector<std::string> notes;

  std::string note_with(const std::string& words) const {
    for (const std::string& n : notes)
      if (n.find(words) != std::string::npos) return n;
    return "";
  }
};
inline ImportedJob import_job(const Job& job) {
  ImportedJob i;
  i.workload = workload_of(job, "job", i.notes);
  return i;
}
inline Job job_of_texts(const std::vector<std::string>& texts) {
  std::vector<InputFile> inputs;
  for (std::size_t r = 0; r < texts.size(); ++r)
    inputs.push_back(InputFile::from_memory(texts[r], fmt::format("rank{}.json", r)));
  return read_job(inputs);
}

}  // namespace linerate::trace
