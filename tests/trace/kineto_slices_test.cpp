// Large traces are parsed a slice of the events at a time: whatever stands in them, the numbers are
// those of the whole.
#include <gmock/gmock.h>

#include "linerate/core/rng.hpp"
#include "linerate/trace/explain/breakdown.hpp"
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
  }
  void progress(std::size_t) override {}
  long events = 0;
  std::size_t text = 0;
};

struct Scanned {
  PaddedText text;  // what the tokens of the file point into
  Counter counter;
  ScanResult result;
  bool unchanged = false;  // the text, by the patches
};
Scanned scan(const std::string& json, std::size_t slice_bytes) {
  Scanned s{.text = PaddedText(json), .counter = {}, .result = {}};
  s.result = scan_kineto(s.text, s.counter, slice_bytes);
  s.unchanged = s.text.view() == json;
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
  EXPECT_THAT(job.notes, Contains(HasSubstr("damaged JSON was mended")));
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
    const Scanned slices = scan(json, 300);
    ASSERT_TRUE(slices.unchanged) << json;
    if (slices.result.end != ScanEnd::whole) continue;
    ++whole_slices;
    const Scanned whole = scan(json, kOnePiece);
    ASSERT_EQ(whole.result.end, ScanEnd::whole) << json;
    ASSERT_EQ(slices.counter.events, whole.counter.events) << json;
    ASSERT_EQ(slices.counter.text, whole.counter.text) << json;
  }
  EXPECT_GT(whole_slices, 5000);
}

}  // namespace
}  // namespace linerate::trace
