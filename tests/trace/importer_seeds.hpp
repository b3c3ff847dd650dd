// One small input of every importer at least, and pieces of the samples and fixtures if they are
// there: what mutation and fuzzing start from, and what the test of the importers recognises.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "linerate/core/file.hpp"
#include "trace/feed_importer.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {

/// GlobalMetadata "0.0.4", then one all-gather of 100 bytes in group "1" on the device.
inline std::string chakra_seed() {
  constexpr char bytes[] =
      "\x07\x0a\x05"
      "0.0.4"
      "\x4f\x12\x0a"
      "ncclKernel"
      "\x18\x07\x30\x64\x38\x05"
      "\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00"
      "\x52\x0d\x0a\x09"
      "comm_type\x48\x02"
      "\x52\x0d\x0a\x09"
      "comm_size\x48\x64"
      "\x52\x0d\x0a\x07pg_name\xea\x01\x01"
      "1";
  return {bytes, sizeof bytes - 1};
}

/// A small file of one format.
struct Seed {
  std::string importer;  // its name
  std::string text;
};

/// At least one of every importer (importers_test.cpp).
inline std::vector<Seed> importer_seeds() {
  std::vector<Seed> all;
  all.push_back(
      {"PyTorch trace",
       trace_of(
           0, 2,
           {step(0, 0, 100), kernel("gemm", 0, 40),
            kernel("ncclDevKernel_AllReduce", 20, 50,
                   collective("allreduce", 10, 2, R"("Seq":1,"Comms Id":18446744073709551615)")),
            R"({"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":1,"ts":0,)"
            R"("dur":1,"args":{"External id":5,"Collective name":"wait","In msg nelems":0}})",
            R"({"ph":"X","cat":"user_annotation","name":"nccl:all_reduce","pid":1,"tid":9,"ts":0,)"
            R"("dur":10,"args":{"Input Dims":[[4096]],"Input type":["float"]}})",
            R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":9,"ts":4,)"
            R"("dur":1,"args":{"correlation":5}})"})});
  all.push_back(
      {"Horovod timeline",
       R"([{"ph":"B","name":"NEGOTIATE_ALLREDUCE","ts":2000,"pid":7},{"ph":"X","name":"1",)"
       R"("ts":2310,"pid":7,"dur":0},{"ph":"E","ts":2312,"pid":7},{"ph":"B","name":"ALLREDUCE",)"
       R"("ts":2315,"pid":7},{"ph":"B","name":"NCCL_ALLREDUCE","ts":2350,"pid":7},{"ph":"E",)"
       R"("ts":2790,"pid":7},{"ph":"E","ts":2796,"pid":7,"args":{"dtype":"float32","shape":"[512,)"
       R"( 512]"}},)"});
  all.push_back(
      {"benchmark log",
       "# nThread 1 nGpus 2\n#  Rank  0 Pid 1 on h device 0\n#  Rank  1 Pid 1 on h device 1\n#  "
       "size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n "
       "1048576  262144  float  sum  -1  20.00  52.43  52.43  0  21.00  49.93  49.93  0\n"});
  all.push_back(
      {"benchmark log",
       R"({"version":"2.17","nccl_version":1,"args":["all_reduce_perf"],"results":[{"size":1024,)"
       R"("count":256,"type":"float","redop":"sum","root":" -1","out_of_place":{"time":12.5,)"
       R"("alg_bw":0.08192,"bus_bw":0.08192},"in_place":null}]})"});
  all.push_back({"benchmark log",
                 "# OSU MPI Allreduce Latency Test v5.9\n# Size       Avg Latency(us)\n4    "
                 "2.10\n8   2.2\n"});
  all.push_back({"benchmark log",
                 "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/"
                 "s)\n1048576,262144,float,51400,30.60,52740,29.82\n"});
  all.push_back(
      {"Ascend trace",
       R"([{"ph":"M","name":"process_name","pid":2,"args":{"name":"Ascend Hardware"}},{"ph":"X",)"
       R"("name":"MatMulV2","pid":2,"tid":3,"ts":"10.500","dur":9,"args":{"Task Type":"AI_CORE"}},)"
       R"({"ph":"M","name":"process_name","pid":3,"args":{"name":"HCCL"}},{"ph":"X",)"
       R"("name":"hcom_allReduce__3_0","pid":3,"tid":1,"ts":"12","dur":4,"args":{"count":8,)"
       R"("data_type":"FP16"}},{"ph":"X","name":"ProfilerStep#1","pid":4,"tid":1,"ts":"0",)"
       R"("dur":40}])"});
  all.push_back(
      {"PyTorch trace",
       R"({"schemaVersion":1,"distributedInfo":{"backend":"gloo","rank":0,"world_size":2},)"
       R"("traceEvents":[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,)"
       R"("tid":1,"ts":0,"dur":90},{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,)"
       R"("ts":1,"dur":5},{"ph":"X","cat":"cpu_op",)"
       R"("name":"autograd::engine::evaluate_function: AddmmBackward0","pid":1,"tid":1,"ts":10,)"
       R"("dur":5},{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":11,"dur":1,)"
       R"("args":{"Input Dims":[[4,3],[3,2]]}},{"ph":"X","cat":"cpu_op",)"
       R"("name":"torch::autograd::AccumulateGrad","pid":1,"tid":1,"ts":16,"dur":1,)"
       R"("args":{"Input Dims":[[4,2]],"Input type":["float"]}},{"ph":"X","cat":"cpu_op",)"
       R"("name":"c10d::allreduce_","pid":1,"tid":1,"ts":18,"dur":2,"args":{"Input Dims":[[[8]],)"
       R"([]],"Input type":["TensorList",""]}},{"ph":"X","cat":"user_annotation",)"
       R"("name":"gloo:all_reduce","pid":1,"tid":5,"ts":19,"dur":9,"args":{"Input Dims":[[8]],)"
       R"("Input type":["c10::Half"]}},{"ph":"X","cat":"user_annotation",)"
       R"("name":"Optimizer.step#SGD.step","pid":1,"tid":1,"ts":30,"dur":2}]})"});
  all.push_back({"per-gradient log", "prose\n1\n2\n10.5,400\n20,8\n"});
  all.push_back(
      {"PyTorch host execution trace",
       R"({"schema":"1.0.2","nodes":[{"id":3,"name":"record_param_comms","inputs":{"values":[[[[9,)"
       R"(8,0,64,4,"cuda:0"]]],1,["0","d"],0,"allreduce",[],[],0,1,2]},"attrs":[]}]})"});
  all.push_back(
      {"Chakra JSON trace",
       R"({"workload_graph":[{"Id":1,"Name":"k","NodeType":7,"runtime":7,"is_cpu_op":false,)"
       R"("comm_type":0,"comm_size":64}]})"});
  all.push_back({"Chakra process groups", R"({"1": [0, 1], "2": [0, 2]})"});
  all.push_back(
      {"Horovod autotune log",
       "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
       "tensor_fusion_threshold,score\n0,0,0,1,5,64,1.5\n"});
  all.push_back(
      {"benchmark log",
       "$ ./all_reduce_perf\n     1048576  262144  float  sum  -1  20.00  52.43  78.64  0  21.00  "
       "49.93  74.9  0\n# scatter_perf\n"});
  all.push_back(
      {"PyTorch trace",
       R"({"traceEvents":[)" +
           kernel("ncclDevKernel_SendRecv", 0, 10,
                  R"("Collective name":"all_to_allv","In msg nelems":400,"Out msg nelems":200,)"
                  R"("Group size":2,"dtype":"Half","In split size":"[100, 300]",)"
                  R"("Out split size":"[100, ..., 100]","Process Group Name":"1",)"
                  R"("Process Group Ranks":"[0, 1]","Comms Id":18446744073709551615)") +
           R"(],"baseTimeNanoseconds":1735632360000000000,"distributedInfo":{"rank":1,)"
           R"("world_size":4,"pg_config":[{"uid":"1","pg_size":2,"ranks":"[0, 1]"}]}})"});
  all.push_back({"Chakra execution trace", chakra_seed()});
  all.push_back(
      {"linerate Timeline", doc::to_json(timeline_of(job_from(all.front().text), "trace.json"))});
  all.push_back({"linerate document", R"({"document": "workload", "schema": 4, "name": "x"})"});
  all.push_back({"nsys database", "SQLite format 3" + std::string(5, '\0')});
  all.push_back(
      {"NCCL profiler trace",
       R"([{"name":"AllReduce","ph":"b","id":1,"ts":1,"args":{"SeqNum":1,"CommHash":2}}])"});
  all.push_back({"memory timeline", "[[1, 2, 3], [[4, 5], [6, 7]]]"});
  all.push_back({"Git LFS pointer", "version https://git-lfs.github.com/spec/v1\nsize 5\n"});
  all.push_back({"XLA profile", "\n\x10\x12\x09/host:CPU\x1a\x03"});
  all.push_back({"Perfetto trace", "\n\x0e\x1a\x0cperfetto.com"});
  all.push_back({"rocprofiler output", R"({"rocprofiler-sdk-tool": [{"metadata": {}}]})"});
  all.push_back({"unknown", "hello"});
  return all;
}

/// The same, and several files of one job, which feed_importer takes apart.
inline std::vector<std::string> format_seeds() {
  std::vector<std::string> all;
  for (const Seed& seed : importer_seeds()) all.push_back(seed.text);
  const std::string groups = R"({"1": [0, 1], "2": [2, 3]})";
  all.push_back(chakra_seed() + kNextFile + chakra_seed() + kNextFile + groups);
  const std::string rank =
      kernel("ncclDevKernel_AllReduce", 20, 50, collective("allreduce", 10, 2, R"("Seq":1)"));
  all.push_back(trace_of(0, 2, {step(0, 0, 100), rank}) + kNextFile +
                trace_of(1, 2, {step(0, 5, 100), rank}));
  return all;
}

/// And pieces of the fixtures and samples; files are cut to windows, so that an input costs
/// microseconds and every part is reached.
inline std::vector<std::string> seeds() {
  std::vector<std::string> all = format_seeds();
  for (const std::filesystem::path folder :
       {"tests/trace/fixtures", "../shared/data/kineto", "../shared/data/per_gradient",
        "../shared/data/collectives", "../shared/data/chakra"}) {
    std::error_code absent;
    for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
      InputFile input = InputFile::open(entry.path());
      const std::string text(input.read_all().view());
      all.push_back(text.substr(0, 6000));
      all.push_back(text.substr(text.size() / 2, 6000));
      all.push_back(
          "{\"traceEvents\": [" +
          text.substr(std::min(text.size(), text.find("\"ph\"", text.size() / 2) - 1), 5000));
      all.push_back(read_file(entry.path()).substr(0, 3000));  // truncated gzip
    }
  }
  return all;
}

}  // namespace linerate::trace
