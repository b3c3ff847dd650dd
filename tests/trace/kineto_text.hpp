// Small Kineto traces written by hand: whole numbers of microseconds, so that every sum in the
// tests is exact.
#pragma once

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/load.hpp"
#include "linerate/trace/to_workload.hpp"

namespace linerate::trace {

inline std::string kernel(const std::string& name, double ts, double dur,
                          const std::string& args = "", int stream = 7) {
  return fmt::format(R"({{"ph":"X","cat":"kernel","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},)"
                     R"("args":{{"stream":{}{}}}}})",
                     name, stream, ts, dur, stream, args.empty() ? "" : "," + args);
}
inline std::string collective(const std::string& name, long elements, int ranks,
                              const std::string& more = "", const std::string& type = "Float") {
  return fmt::format(
      R"("Collective name":"{}","In msg nelems":{},"Out msg nelems":{},"Group size":{},)"
      R"("dtype":"{}","Process Group Name":"0"{})",
      name, elements, elements, ranks, type, more.empty() ? "" : "," + more);
}
inline std::string host_event(const char* category, const std::string& name, double ts, double dur,
                              const std::string& args = "", int tid = 1) {
  return fmt::format(
      R"({{"ph":"X","cat":"{}","name":"{}","pid":1,"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
      category, name, tid, ts, dur, args);
}
inline std::string step(int n, double ts, double dur) {
  return host_event("user_annotation", fmt::format("ProfilerStep#{}", n), ts, dur);
}
/// A call of the runtime; the argument that ties a kernel to it has the same text.
inline std::string correlation(long id) { return fmt::format(R"("correlation":{})", id); }
inline std::string launch_call(long id, double ts, double dur) {
  return host_event("cuda_runtime", "cudaLaunchKernel", ts, dur, correlation(id));
}
inline std::string op(const std::string& name, double ts, double dur) {
  return host_event("cpu_op", name, ts, dur);
}
/// Arguments of an operator whose input is a tensor of this shape, "[3,2]", or of so many numbers.
inline std::string floats(const std::string& shape, const std::string& type = "float") {
  return fmt::format(R"("Input Dims":[{}],"Input type":["{}"])", shape, type);
}
inline std::string floats(long elements, const std::string& type = "float") {
  return floats(fmt::format("[{}]", elements), type);
}
/// A gradient that is complete at `ts`, within its autograd node: of so many floats, or recorded
/// without shapes.
inline std::string gradient(double ts, const std::string& args = "") {
  return op("autograd::engine::evaluate_function: AddmmBackward0", ts - 5, 4) + ",\n" +
         op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", ts - 1, 3) +
         ",\n" + host_event("cpu_op", "torch::autograd::AccumulateGrad", ts, 1, args);
}
inline std::string gradient(long elements, double ts) { return gradient(ts, floats(elements)); }
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
         host_event("user_annotation", "gloo:all_reduce", ts, dur, floats(elements, type), tid);
}

using Events = std::vector<std::string>;
inline void append(Events& events, const Events& more) {
  events.insert(events.end(), more.begin(), more.end());
}
/// Marked steps without a pause between them, `us` long, each with the events that
/// `of_step(step, begin)` gives.
inline Events in_steps(int steps, double us, const auto& of_step) {
  Events events;
  for (int s = 0; s < steps; ++s) {
    events.push_back(step(s, us * s, us));
    for (std::string& e : of_step(s, us * s)) events.push_back(std::move(e));
  }
  return events;
}
inline std::string trace_of(int rank, int world, const Events& events,
                            const std::string& backend = "nccl") {
  return fmt::format(
      R"({{"schemaVersion":1,"distributedInfo":{{"backend":"{}","rank":{},"world_size":{}}},)"
      R"("traceEvents":[{}]}})",
      backend, rank, world, fmt::join(events, ",\n"));
}
inline std::string gloo_trace(int rank, int world, const Events& events) {
  return trace_of(rank, world, events, "gloo");
}

// ---- text as gzip makes it, and files of it ----

inline std::string gzipped(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

/// Digits that gzip cannot make small, so that a cut stream still holds most rows.
inline std::string noise(int n) {
  return std::to_string(static_cast<unsigned>(n) * 2654435761u % 1000003u + 1);
}

/// An input of this content, whose name ends so: gzip is unpacked from files alone.
inline InputFile input_of(const std::string& content, const std::string& name) {
  if (!content.starts_with("\x1f\x8b")) return InputFile::from_memory(content, name);
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / (std::to_string(::getpid()) + "." + name);
  write_file_atomically(path, content);
  InputFile input = InputFile::open(path);
  std::filesystem::remove(path);  // what is open can be read
  return input;
}

/// Names and texts of the files of one job.
using Texts = std::vector<std::pair<std::string, std::string>>;
inline Job job_of_files(const Texts& files) {
  std::vector<InputFile> inputs;
  for (const auto& [name, text] : files) inputs.push_back(input_of(text, name));
  return read_job(inputs);
}
inline Job job_from(const std::string& text, const std::string& name = "trace.json") {
  return job_of_files({{name, text}});
}
inline Job job_of_ranks(const std::vector<std::string>& texts) {
  Texts files;
  for (const std::string& text : texts)
    files.emplace_back(fmt::format("rank{}.json", files.size()), text);
  return job_of_files(files);
}
/// Every rank recorded these events.
inline Job job_of_equal_ranks(int ranks, const Events& events, const std::string& backend) {
  std::vector<std::string> texts;
  for (int r = 0; r < ranks; ++r) texts.push_back(trace_of(r, ranks, events, backend));
  return job_of_ranks(texts);
}
inline Job gloo_job(int ranks, const Events& events) {
  return job_of_equal_ranks(ranks, events, "gloo");
}
inline Job nccl_job(int ranks, const Events& events) {
  return job_of_equal_ranks(ranks, events, "nccl");
}

/// All ranks of a recording in tests/trace/fixtures. Tests run in the project's root.
inline Job recorded_job(const std::string& name) {
  std::vector<std::filesystem::path> files;
  for (const int rank : {0, 1, 2, 3})
    if (const std::filesystem::path file =
            fmt::format("tests/trace/fixtures/{}.rank{}.json.gz", name, rank);
        std::filesystem::exists(file))
      files.push_back(file);
  return load_job(files);
}

/// What an action says that is not done.
inline std::string refusal_of(const auto& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
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

}  // namespace linerate::trace
