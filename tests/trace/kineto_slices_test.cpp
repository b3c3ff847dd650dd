// Large traces are parsed a slice of the events at a time, and in parts by several threads:
// whatever stands in them, the numbers are those of the whole.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "linerate/core/file.hpp"
#include "linerate/core/random.hpp"
#include "linerate/trace/explain/explanation.hpp"
#include "linerate/trace/kineto/tokens.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr int kEvents = 9000;  // about 1.5 MB: several slices

/// Counts what a scan hands out.
struct Counter : TokenSink {
  bool needs_no_args(EventCategory, std::string_view) override { return false; }
  void event(EventCategory, const EventTokens& t) override {
    ++events;
    text += t.name.size() + t.ts.size();
    times += std::string(t.ts) + " ";
  }
  void progress(std::size_t bytes) override { done = bytes; }
  long events = 0;
  std::size_t text = 0;
  std::string times;  // in the order of the events
  std::size_t done = 0;
};

struct Scanned {
  Counter counter;
  ScanResult result;
  bool unchanged = false;      // the text, by the patches
  std::size_t used_sinks = 0;  // that got an event
};
Scanned scan(const std::string& json, std::size_t slice_bytes, std::size_t parts = 1) {
  Scanned s;
  PaddedText text(json);
  std::vector<Counter> counters(parts);
  std::vector<TokenSink*> sinks;
  for (Counter& c : counters) sinks.push_back(&c);
  s.result = scan_kineto(text, sinks, slice_bytes);
  s.unchanged = text.view() == json;
  for (const Counter& c : counters) {
    s.counter.events += c.events;
    s.counter.text += c.text;
    s.counter.times += c.times;
    s.counter.done += c.done;
    s.used_sinks += c.events > 0;
  }
  return s;
}

/// A kernel of 8 us every 12 us.
std::vector<std::string> kernels(const std::string& name, const std::string& args = "") {
  std::vector<std::string> list;
  for (int i = 0; i < kEvents; ++i) list.push_back(kernel(name, 12.0 * i, 8, args));
  return list;
}

void expect_all_kernels(const std::string& json) {
  const Breakdown b = break_down(job_from(json));
  EXPECT_NEAR(b.whole.compute_s, kEvents * 8e-6, 1e-12);
}

TEST(KinetoSlices, HandOutWhatTheWholeHandsOut) {
  const std::string json = trace_of(0, 1, kernels("gemm, \\\"tricky\\\"}, {\\\"ph\\\": "));
  const Scanned slices = scan(json, kSliceBytes), whole = scan(json, kOnePiece);
  EXPECT_TRUE(slices.result.sliced);
  EXPECT_FALSE(whole.result.sliced);
  EXPECT_EQ(slices.result.end, ScanEnd::whole);
  EXPECT_EQ(slices.counter.events, kEvents);
  EXPECT_EQ(slices.counter.text, whole.counter.text);
  EXPECT_EQ(slices.result.file.rank, "0");
  EXPECT_TRUE(slices.unchanged);
}

TEST(KinetoSlices, PartsHandOutTheSameInTheSameOrder) {
  for (const char* between : {",", " ,\r\n "})
    for (const bool inside_root : {true, false}) {
      const std::string list =
          fmt::format("[{}]", fmt::join(kernels("gemm, }, {\\\"ph\\\": "), between));
      const std::string json = inside_root ? R"({"distributedInfo":{"rank":2},"traceEvents":)" +
                                                 list + R"(,"baseTimeNanoseconds":7})"
                                           : list;
      const Scanned whole = scan(json, kOnePiece);
      ASSERT_EQ(whole.counter.events, kEvents);
      for (const std::size_t parts : {2u, 3u, 7u}) {
        const Scanned some = scan(json, 10'000, parts);
        EXPECT_EQ(some.result.end, ScanEnd::whole);
        EXPECT_EQ(some.used_sinks, parts);
        EXPECT_EQ(some.counter.times, whole.counter.times);
        EXPECT_EQ(some.result.events, whole.result.events);
        EXPECT_EQ(some.result.file.rank, inside_root ? "2" : "");
        EXPECT_EQ(some.result.file.base_time, inside_root ? "7" : "");
        EXPECT_GT(some.counter.done, json.size() / 2);
        EXPECT_LE(some.counter.done, json.size());
      }
    }
}

// Names, groups, arguments, splits and threads with names are first met in different parts.
TEST(KinetoSlices, AFileReadByThreadsIsTheSameJob) {
  std::vector<std::string> events;
  const auto all_to_all = [](int i) {
    return fmt::format(
        R"("Collective name":"all_to_allv","In msg nelems":400,"Out msg nelems":200,)"
        R"("Group size":2,"dtype":"Half","In split size":"[{}, 300]","Out split size":"[100,)"
        R"( 100]","Process Group Name":"{}","Process Group Ranks":"[0, {}]","correlation":{})",
        100 + i % 3, i % 5, 1 + i % 5, i);
  };
  for (int i = 0; i < 4000; ++i) {
    const double ts = 100.0 * i;
    if (i % 300 == 0) events.push_back(step(i / 300, ts, 29'000));
    events.push_back(kernel(fmt::format("gemm_{}", i / 100), ts, 30));
    events.push_back(kernel("ncclDevKernel_SendRecv", ts + 40, 20, all_to_all(i)));
    events.push_back(fmt::format(
        R"({{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":"main {}",)"
        R"("ts":{},"dur":2,"args":{{"correlation":{}}}}})",
        i / 1000, ts + 1, i));
    events.push_back(fmt::format(
        R"({{"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":"main {}","ts":{},)"
        R"("dur":5,"args":{{"External id":{},"Collective name":"rare_{}","In msg nelems":4}}}})",
        i / 1000, ts, i, i / 700));
    events.push_back(fmt::format(
        R"({{"ph":"X","cat":"cpu_op","name":"aten::op_{}","pid":1,"tid":1,"ts":{},"dur":3,)"
        R"("args":{{}}}})",
        i / 50, ts));
  }
  const auto path = std::filesystem::temp_directory_path() / "linerate-parts.rank0.json";
  write_file_atomically(path, trace_of(0, 8, events));
  ASSERT_GT(std::filesystem::file_size(path), std::size_t{3} << 20);  // three parts
  const auto said = [&path](unsigned threads) {
    const Breakdown b = break_down(load_job({path}, {.threads = threads}));
    return explain_json(b, judge(b));
  };
  const std::string alone = said(1);
  EXPECT_EQ(said(2), alone);
  EXPECT_EQ(said(3), alone);
  std::filesystem::remove(path);
}

TEST(KinetoSlices, AListWithoutARootIsCutToo) {
  const std::string json = fmt::format(" [{}]", fmt::join(kernels("gemm"), " ,\r\n "));
  const Scanned slices = scan(json, kSliceBytes);
  EXPECT_TRUE(slices.result.sliced);
  EXPECT_EQ(slices.result.end, ScanEnd::whole);
  EXPECT_EQ(slices.counter.events, kEvents);
}

TEST(KinetoSlices, KeysBehindTheEventsCount) {
  const std::string json = fmt::format(
      R"({{"traceEvents":[{}],"baseTimeNanoseconds":7,"distributedInfo":{{"rank":3}}}})",
      fmt::join(kernels("gemm"), ","));
  const Scanned slices = scan(json, kSliceBytes);
  EXPECT_TRUE(slices.result.sliced);
  EXPECT_EQ(slices.result.file.base_time, "7");
  EXPECT_EQ(slices.result.file.rank, "3");
}

TEST(KinetoSlices, AWrongCutInsideAnEventIsNoticed) {
  // Each event holds a list of objects that look like events.
  const std::string json = trace_of(
      0, 1, kernels("gemm", R"("parts":[{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"}])"));
  EXPECT_EQ(scan(json, kSliceBytes).result.end, ScanEnd::damaged);
  expect_all_kernels(json);
}

TEST(KinetoSlices, AWrongCutInAnotherListIsNoticed) {
  const std::string other = fmt::format("{}", fmt::join(kernels("other"), ","));
  const std::string few = kernel("gemm", 0, 8);
  const std::string json = fmt::format(R"({{"traceEvents":[{}],"other":[{}]}})", few, other);
  const Scanned slices = scan(json, kSliceBytes);
  EXPECT_EQ(slices.result.end, ScanEnd::damaged);
  EXPECT_NEAR(break_down(job_from(json)).whole.compute_s, 8e-6, 1e-12);
}

TEST(KinetoSlices, TheKeyInsideAStringIsNoList) {
  const std::string json = fmt::format(R"({{"note":"\"traceEvents\": [","traceEvents":[{}]}})",
                                       fmt::join(kernels("gemm"), ","));
  expect_all_kernels(json);
  const std::string nested = fmt::format(R"({{"a":{{"traceEvents":[]}},"traceEvents":[{}]}})",
                                         fmt::join(kernels("gemm"), ","));
  expect_all_kernels(nested);
}

TEST(KinetoSlices, ATruncatedTraceIsMendedAsBefore) {
  std::string json = trace_of(0, 1, kernels("gemm"));
  json.resize(json.size() - 150);
  const Job job = job_from(json);
  EXPECT_NEAR(break_down(job).whole.compute_s, (kEvents - 2) * 8e-6, 3 * 8e-6);
  EXPECT_THAT(job.notes, Contains(HasSubstr("damaged JSON was repaired")));
}

// Damage of any kind: what the slices read without complaint is what the whole holds.
TEST(KinetoSlices, NeverReadMoreThanTheWholeWhenTheTextIsDamaged) {
  std::vector<std::string> events;
  for (int i = 0; i < 20; ++i)
    events.push_back(kernel("g, {}", 12.0 * i, 8, R"("parts":[{"name":"a"},{"b":[1,2]}])"));
  const std::string seed = trace_of(0, 1, events);
  constexpr std::string_view kBytes = "{}[],:\"\\ 1a";
  long whole_slices = 0;
  for (std::uint64_t round = 0; round < 20'000; ++round) {
    std::uint64_t counter = 0;
    std::string json = seed;
    for (std::uint64_t edits = random_below(round, counter++, 3); edits-- > 0;) {
      const std::size_t at = random_below(round, counter++, json.size());
      const char byte = kBytes[random_below(round, counter++, kBytes.size())];
      switch (random_below(round, counter++, 3)) {
        case 0:
          json[at] = byte;
          break;
        case 1:
          json.insert(at, 1, byte);
          break;
        default:
          json.erase(at, 1 + random_below(round, counter++, 40));
      }
    }
    const Scanned slices = scan(json, 300, 1 + round % 3);
    ASSERT_TRUE(slices.unchanged) << json;
    if (slices.result.end != ScanEnd::whole) continue;
    ++whole_slices;
    const Scanned whole = scan(json, kOnePiece);
    ASSERT_EQ(whole.result.end, ScanEnd::whole) << json;
    ASSERT_EQ(slices.counter.events, whole.counter.events) << json;
    ASSERT_EQ(slices.counter.text, whole.counter.text) << json;
    ASSERT_EQ(slices.counter.times, whole.counter.times) << json;
  }
  EXPECT_GT(whole_slices, 5000);
}

}  // namespace
}  // namespace linerate::trace
