// Small Kineto traces written by hand: whole numbers of microseconds, so that every sum in the
// tests is exact.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "linerate/trace/importers.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/load.hpp"

namespace linerate::trace {

inline std::string kernel(const std::string& name, double ts, double dur,
                          const std::string& args = "", int stream = 7) {
  return fmt::format(R"({{"ph":"X","cat":"kernel","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},)"
                     R"("args":{{"stream":{}{}}}}})",
                     name, stream, ts, dur, stream, args.empty() ? "" : "," + args);
}
inline std::string step(int n, double ts, double dur) {
  return fmt::format(
      R"({{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{}","pid":1,"tid":1,"ts":{},)"
      R"("dur":{}}})",
      n, ts, dur);
}
inline std::string collective(const std::string& name, long elements, int ranks,
                              const std::string& more = "") {
  return fmt::format(
      R"("Collective name":"{}","In msg nelems":{},"Out msg nelems":{},"Group size":{},)"
      R"("dtype":"Float","Process Group Name":"0"{})",
      name, elements, elements, ranks, more.empty() ? "" : "," + more);
}
inline std::string trace_of(int rank, int world, const std::vector<std::string>& events,
                            const std::string& backend = "nccl") {
  return fmt::format(
      R"({{"schemaVersion":1,"distributedInfo":{{"backend":"{}","rank":{},"world_size":{}}},)"
      R"("traceEvents":[{}]}})",
      backend, rank, world, fmt::join(events, ",\n"));
}
inline Job job_from(const std::string& text, const std::string& name = "trace.json") {
  InputFile input = InputFile::from_memory(text, name);
  return read_job(input);
}
inline Job job_of_ranks(const std::vector<std::string>& texts) {
  std::vector<InputFile> inputs;
  for (std::size_t r = 0; r < texts.size(); ++r)
    inputs.push_back(InputFile::from_memory(texts[r], fmt::format("rank{}.json", r)));
  return read_job(inputs);
}

}  // namespace linerate::trace
