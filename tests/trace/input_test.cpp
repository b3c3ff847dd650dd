#include "linerate/trace/input/input_file.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/error.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/per_gradient/per_gradient.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "trace/chakra_text.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

std::string numbers(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += noise(i) + "\n";
  return text;
}

/// The same bytes from a file, and from memory unless they are gzip.
std::vector<InputFile> both(const std::string& content) {
  const auto path = std::filesystem::path(testing::TempDir()) / "linerate_input_test.bin";
  std::ofstream(path, std::ios::binary) << content;
  std::vector<InputFile> inputs;
  if (!content.starts_with("\x1f\x8b")) inputs.push_back(InputFile::from_memory(content, "memory"));
  inputs.push_back(InputFile::open(path));
  std::filesystem::remove(path);  // what is open can be read
  return inputs;
}

TEST(InputFile, IsReadWholeAndAlikeWithoutItsByteOrderMark) {
  const std::string text = numbers(1'000'000);  // several MiB
  for (const std::string& content : {text, "\xef\xbb\xbf" + text, gzipped(text)})
    for (InputFile& input : both(content)) {
      EXPECT_EQ(input.head(), text.substr(0, 64 * 1024));
      EXPECT_EQ(input.read_all().view(), text);
      EXPECT_FALSE(input.truncated());
    }
}

TEST(InputFile, LinesAreTheSameFromEither) {
  const std::string text = numbers(50'000) + "the last, without a line end";
  for (const std::string& content : {text, gzipped(text)})
    for (InputFile& input : both(content)) {
      std::string again;
      for (std::string_view line; input.next_line(line);) again += std::string(line) + "\n";
      EXPECT_EQ(again, text + "\n");
      EXPECT_EQ(input.line_number(), 50'001u);
    }
}

TEST(InputFile, NothingIsAWholeFileAndMembersFollowEachOther) {  // pigz, concatenated files
  for (const auto& [content, text] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {gzipped(""), ""}, {gzipped("one\n") + gzipped("two\n"), "one\ntwo\n"}})
    for (InputFile& input : both(content)) {
      EXPECT_EQ(input.read_all().view(), text);
      EXPECT_FALSE(input.truncated());
    }
}

TEST(InputFile, KeepsWhatCameBeforeTheEndOfACutStream) {
  const std::string text = numbers(100'000), whole = gzipped(text);
  for (InputFile& input : both(whole.substr(0, whole.size() / 2))) {
    const PaddedText read = input.read_all();
    EXPECT_TRUE(input.truncated());
    EXPECT_GT(read.size(), text.size() / 3);
    EXPECT_TRUE(text.starts_with(read.view()));
  }
}

TEST(InputFile, LosesLittleBeforeADamagedPlace) {
  const std::string text = numbers(100'000);
  std::string damaged = gzipped(text);
  // The check sum at the end: all of the text is there, and zlib drops what it hands out last.
  damaged[damaged.size() - 8] = static_cast<char>(damaged[damaged.size() - 8] ^ 1);
  for (InputFile& input : both(damaged)) {
    const PaddedText read = input.read_all();
    EXPECT_TRUE(input.truncated());
    EXPECT_GE(read.size() + 16 * 1024, text.size());
    EXPECT_TRUE(text.starts_with(read.view()));
  }
}

TEST(InputFile, AFolderIsNoFile) {
  EXPECT_THAT(refusal_of([] { InputFile::open(testing::TempDir()); }),
              testing::HasSubstr("expected a file, found a folder"));
}

// ---- what is broken in the same way for every format: gzip streams that end early, events in any
// order ----

/// The last third of the stream is missing.
std::string cut(const std::string& text) {
  const std::string whole = gzipped(text);
  return whole.substr(0, whole.size() * 2 / 3);
}

/// Notes of reading, or the message.
std::string said_of(const auto& notes) {
  try {
    return fmt::format("{}", fmt::join(notes(), "\n"));
  } catch (const InputError& e) {
    EXPECT_EQ(e.exit_code(), 3);
    return e.what();
  }
}
/// Of reading the file as explain does.
std::string said_of(const std::string& content, const std::string& name) {
  return said_of([&] { return job_from(content, name).notes; });
}

const auto kSaysCut = AnyOf(HasSubstr("the gzip stream ends early"),
                            HasSubstr("expected a whole gzip stream, found one that ends early"));

TEST(TruncatedGzip, IsSaidByEveryImporterOfTraces) {
  std::vector<std::string> kernels;
  std::string horovod = "[", nodes, graph;
  for (int i = 0; i < 400; ++i) {
    kernels.push_back(kernel("gemm" + noise(i), 100 * i, 7));
    horovod += fmt::format(
        R"({{"ph":"B","name":"ALLREDUCE","ts":{0},"pid":7}},{{"ph":"B","name":"NCCL_ALLREDUCE",)"
        R"("ts":{0},"pid":7}},{{"ph":"E","ts":{1},"pid":7}},{{"ph":"E","ts":{1},"pid":7,)"
        R"("args":{{"dtype":"float32","shape":"[{2}]"}}}},)",
        100 * i, 100 * i + 50, noise(i));
    nodes += fmt::format(R"({{"id":{},"name":"aten::{}"}},)", i, noise(i));
    graph += fmt::format(R"({{"Id":{},"Name":"{}","NodeType":4,"runtime":7,"is_cpu_op":false}},)",
                         i, noise(i));
  }
  std::string chakra = chakra::head();
  for (int i = 0; i < 400; ++i) chakra += chakra::message(chakra::field(2, "k" + noise(i)));
  EXPECT_THAT(said_of(cut(trace_of(0, 1, kernels)), "rank0.json.gz"), kSaysCut);
  EXPECT_THAT(said_of(cut(horovod), "horovod.gz"), kSaysCut);
  EXPECT_THAT(said_of(cut(R"({"schema":"1.1.1","nodes":[)" + nodes + "{}]}"), "et.gz"), kSaysCut);
  EXPECT_THAT(said_of(cut(R"({"workload_graph":[)" + graph + "{}]}"), "feeder.gz"), kSaysCut);
  EXPECT_THAT(said_of(cut(chakra), "job.0.et.gz"), kSaysCut);
  const Job job = job_from(trace_of(0, 1, kernels));
  EXPECT_THAT(said_of(cut(doc::to_json(timeline_of(job, "x"))), "run.json.gz"),
              testing::AllOf(HasSubstr("run.json.gz"), kSaysCut));
  std::string groups = R"({"1": [0)";
  for (int i = 0; i < 400; ++i) groups += ", " + noise(i);
  EXPECT_THAT(said_of(cut(groups + "]}"), "groups.gz"), kSaysCut);
}

TEST(TruncatedGzip, WhatCameBeforeIsRead) {
  std::vector<std::string> kernels;
  for (int i = 0; i < 400; ++i) kernels.push_back(kernel("gemm" + noise(i), 100 * i, 7));
  const Job job = job_from(cut(trace_of(0, 1, kernels)));
  EXPECT_GT(job.ranks.at(0).compute.size(), 200u);
  EXPECT_LT(job.ranks.at(0).compute.size(), 400u);
}

TEST(TruncatedGzip, IsSaidByEveryReaderOfLogs) {
  std::string nccl =
                  "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n",
              osu = "# OSU MPI Allreduce Latency Test v5.9\n# Size       Avg Latency(us)\n",
              vtrain = "size(B),count,type,time(ns),busbw,time(ns),busbw\n", json, waits;
  for (int i = 1; i < 400; ++i) {
    nccl += fmt::format("{} {} float sum -1 {} 50.0 75.0 0 {} 50.0 75.0 0\n", 4 * i, i, noise(i),
                        noise(i + 1));
    osu += fmt::format("{}   {}\n", 4 * i, noise(i));
    vtrain += fmt::format("{},{},float,{},1.5,{},1.5\n", 4 * i, i, noise(i), noise(i + 1));
    json += fmt::format(
        R"({{"size":{},"count":1,"type":"float","redop":"sum","out_of_place":{{"time":{}}}}},)",
        4 * i, noise(i));
    waits += fmt::format("{},4\n", noise(i));
  }
  const auto said = [](const std::string& text) {
    InputFile input = input_of(cut(text), "log.gz");
    return said_of([&] { return bench_logs::read_collective_log(input, {.ranks = 4}).notes; });
  };
  EXPECT_THAT(said(nccl), kSaysCut);
  EXPECT_THAT(said(osu), kSaysCut);
  EXPECT_THAT(said(vtrain), kSaysCut);
  EXPECT_THAT(said(R"({"nccl_version":1,"results":[)" + json + "{}]}"), kSaysCut);
  // It names the line at which it ended.
  EXPECT_THAT(refusal_of([&] {
                InputFile input = input_of(cut("prose\n1\n399\n" + waits), "net.bk.log.gz");
                read_per_gradient_log(input);
              }),
              testing::AllOf(kSaysCut, HasSubstr("net.bk.log.gz:")));
}

TEST(Kineto, AnyOrderOfEventsGivesTheSameAnswer) {
  std::vector<std::string> events;
  for (int s = 0; s < 4; ++s) {
    events.push_back(step(s, 1000 * s, 900));
    events.push_back(kernel("gemm", 1000 * s, 400));
    for (int k = 0; k < 3; ++k)
      events.push_back(kernel("ncclDevKernel_AllReduce", 1000 * s + 300 + 100 * k, 50 + k,
                              collective("allreduce", 100 + k, 2)));
  }
  const auto answer = [](const std::vector<std::string>& e) {
    const Breakdown b = break_down(job_from(trace_of(0, 2, e)));
    return explain_json(b, judge(b));
  };
  std::vector<std::string> reversed(events.rbegin(), events.rend());
  EXPECT_EQ(answer(events), answer(reversed));
  std::rotate(events.begin(), events.begin() + 7, events.end());
  EXPECT_EQ(answer(events), answer(reversed));
}

}  // namespace
}  // namespace linerate::trace
