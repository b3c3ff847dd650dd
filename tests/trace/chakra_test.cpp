#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/explain/explanation.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::string varint(std::uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  return out + static_cast<char>(v);
}
std::string field(int number, std::uint64_t v) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(v);
}
std::string field(int number, const std::string& s) {
  return varint((static_cast<std::uint64_t>(number) << 3) | 2) + varint(s.size()) + s;
}
std::string message(const std::string& s) { return varint(s.size()) + s; }
std::string attribute(const char* name, int value_field, std::uint64_t v) {
  return field(10, field(1, std::string(name)) + field(value_field, v));
}
std::string attribute(const char* name, const std::string& v) {
  return field(10, field(1, std::string(name)) + field(29, v));
}
std::string head(const std::string& version = "0.0.4") { return message(field(1, version)); }

/// A device collective of type `comm_type` in group "1", from `start` us.
std::string collective_node(int comm_type, std::uint64_t bytes, std::uint64_t start,
                            std::uint64_t us) {
  return message(field(2, std::string("ncclKernel")) + field(3, 7) + field(6, start) +
                 field(7, us) + attribute("is_cpu_op", 27, 0) +
                 attribute("comm_type", 9, static_cast<std::uint64_t>(comm_type)) +
                 attribute("comm_size", 9, bytes) + attribute("pg_name", std::string("1")) +
                 attribute("seq_id", 9, ~0ull));
}

TEST(Chakra, CountsDeviceCollectivesOnceAndSkipsTheHostsCopies) {
  // comm_type 0 (all-reduce) is present because it sits in a one-of; id 0 is absent; seq_id -1 is a
  // ten-byte varint.
  const std::string host = field(1, 1) + field(2, std::string("c10d::allreduce_")) + field(3, 7) +
                           attribute("is_cpu_op", 27, 1);
  const std::string text = head() + collective_node(0, 4096, 1000, 50) + message(host);
  const Job job = job_from(text, "job.3.et");
  ASSERT_EQ(job.ranks.at(0).communications.size(), 1u);
  EXPECT_EQ(job.ranks[0].communications[0].bytes, 4096);
  EXPECT_EQ(job.ranks[0].communications[0].span.length(), 50'000);
  EXPECT_EQ(job.ranks[0].rank, 3);
  const Job cut = job_from(text.substr(0, text.size() - 3), "job.3.et");
  EXPECT_THAT(cut.notes, Contains(HasSubstr("ends early at byte")));
}

TEST(Chakra, RanksOfOneJobAreJoinedByTheirGroups) {
  // Groups {0, 1} and {2, 3} have one name each; all-gathers state 100 bytes a rank, 200 in all.
  // Rank 1 arrives 30 us late at its all-reduce and moves for 20.
  const auto rank = [](std::uint64_t start, std::uint64_t us) {
    return head() + collective_node(0, 4096, start, us) + collective_node(2, 100, 1000, 10);
  };
  const Job job = job_of_files({{"job.1.et", rank(130, 20)},
                                {"job.0.et", rank(100, 50)},
                                {"groups.json", R"({"1": [0, 1], "2": [2, 3]})"}});
  ASSERT_EQ(job.ranks.size(), 2u);
  EXPECT_EQ(job.ranks[0].rank, 0);
  EXPECT_EQ(job.world_size, 4);
  const Breakdown b = break_down(job);
  ASSERT_EQ(b.collectives.size(), 2u);
  EXPECT_NEAR(*b.collectives[0].transfer_s, 20e-6, 1e-12);
  EXPECT_NEAR(*b.collectives[0].skew_s, 30e-6, 1e-12);
  EXPECT_EQ(b.collectives[0].last_rank, 1);
  EXPECT_EQ(b.collectives[1].bytes, 200);
  EXPECT_TRUE(b.ranks_missing);  // 2 of 4
}

TEST(Chakra, WithoutGroupsTotalsOfAllGathersAreUnknownAndSaid) {
  const Job job = job_from(head() + collective_node(2, 100, 0, 10), "job.0.et");
  EXPECT_EQ(job.ranks.at(0).communications.at(0).bytes, -1);
  EXPECT_THAT(job.notes, Contains(HasSubstr("give the JSON of process groups too")));
}

TEST(Chakra, RanksThatCannotBeToldApartAndBadGroupsAreErrors) {
  const std::string text = head() + collective_node(0, 8, 0, 10);
  const auto message_of = [](const Texts& files) {
    return refusal_of([&] { job_of_files(files); });
  };
  EXPECT_THAT(message_of({{"a.et", text}, {"b.et", text}}),
              HasSubstr("a.et: expected its rank in"));
  EXPECT_THAT(message_of({{"a.1.et", text}, {"b.1.et", text}}),
              HasSubstr("is of rank 1, and so is"));
  EXPECT_THAT(message_of({{"a.0.et", text}, {"groups.json", R"({"1": [0, -1]})"}}),
              HasSubstr("groups.json: /1: expected a list of ranks, found [0,-1]"));
}

TEST(Chakra, FixedNumbersAndFloatsAreAttributesToo) {
  const auto fixed64 = [](int number, std::uint64_t v) {
    std::string out = varint((static_cast<std::uint64_t>(number) << 3) | 1);
    for (int i = 0; i < 8; ++i) out += static_cast<char>(v >> (8 * i));
    return out;
  };
  const std::string node =
      field(3, 7) + attribute("is_cpu_op", 27, 0) + attribute("comm_type", 9, 7) +
      field(10, field(1, std::string("comm_size")) + fixed64(21, 1 << 20)) +
      field(10, field(1, std::string("weight")) + fixed64(3, 0x3ff0000000000000));
  const Job job = job_from(head() + message(node), "a.0.et");
  EXPECT_EQ(job.ranks.at(0).communications.at(0).op, CommOp::reduce_scatter);
  EXPECT_EQ(job.ranks[0].communications[0].bytes, 1 << 20);
}

TEST(Chakra, AnotherSchemaIsNamedWhereHostAndDeviceCannotBeToldApart) {
  EXPECT_THAT(
      refusal_of([] { job_from(head("0.0.1") + message(field(1, 1) + field(3, 7)), "old.0.et"); }),
      testing::AllOf(HasSubstr("old.0.et: schema \"0.0.1\": no node has attributes"),
                     HasSubstr("expected schema 0.0.4")));
}

TEST(Chakra, WithoutDurationsNoTimeIsKnownAndNobodyIsLast) {
  const auto rank = [](const char* name) {
    return std::pair<std::string, std::string>(name, head() + collective_node(0, 4096, 0, 0));
  };
  const Breakdown b = break_down(job_of_files({rank("job.0.et"), rank("job.1.et")}));
  ASSERT_TRUE(b.times_unknown);
  const std::string json = explain_json(b, judge(b));
  for (const char* key : {"compute_busy_s", "communication_busy_s", "duration_s", "transfer_s",
                          "skew_s", "last_rank", "times_last", "delay_per_step_s"})
    EXPECT_THAT(json, HasSubstr(fmt::format("\"{}\": null", key)));
}

}  // namespace
}  // namespace linerate::trace
