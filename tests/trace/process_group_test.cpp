#include "linerate/trace/job/collective_names.hpp"

#include <gmock/gmock.h>

namespace linerate::trace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string thirty() {
  std::string list = "[0";
  for (int i = 1; i < 30; ++i) list += ", " + std::to_string(i);
  return list;
}

ResolvedGroup resolved(const GroupRecord& g, const std::vector<ConfiguredGroup>& c = {},
                       int world = -1) {
  return resolve_groups({g}, c, world).front();
}

TEST(NumberList, NoticesWhatWasCutAtTheEndOrInTheMiddle) {
  EXPECT_THAT(parse_number_list("\"[0, 1]\"")->items, ElementsAre(0, 1));
  EXPECT_FALSE(parse_number_list("[0, 1]")->cut);
  EXPECT_THAT(parse_number_list("[]")->items, IsEmpty());
  EXPECT_TRUE(parse_number_list(thirty() + ", ...]")->cut);
  EXPECT_TRUE(parse_number_list("[0, 1, ..., 63]")->cut);
  EXPECT_FALSE(parse_number_list("0, 1"));
  EXPECT_FALSE(parse_number_list("[a]"));
}

TEST(ProcessGroup, IsRebuiltFromStartStrideAndSize) {
  const ResolvedGroup g =
      resolved({.name = "tp", .ranks = "[1, 3, 5, 7]", .start = 1, .stride = 2, .size = 4});
  EXPECT_THAT(g.ranks, ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(g.text, "tp (ranks 1..7 by 2)");
  // Start -1 stands for a group without a stride: the list is what there is.
  EXPECT_THAT(resolved({.name = "x", .ranks = "[0, 3, 4]", .start = -1, .size = 3}).ranks,
              ElementsAre(0, 3, 4));
}

TEST(ProcessGroup, IsNeverTakenFromACutList) {
  const GroupRecord cut{.name = "7", .ranks = thirty() + ", ...]", .size = 64};
  EXPECT_THAT(resolved(cut).ranks, IsEmpty());
  EXPECT_EQ(resolved(cut, {}, 64).ranks.size(), 64u);  // the whole job
  EXPECT_THAT(resolved(cut, {}, 128).ranks, IsEmpty());
  const auto configured =
      parse_configured_groups(R"([{"pg_name": "7", "pg_size": 3, "ranks": "[0, 2, 9]"}])");
  EXPECT_THAT(resolved({.name = "7", .ranks = cut.ranks, .size = 3}, configured).ranks,
              ElementsAre(0, 2, 9));
}

TEST(ProcessGroup, OfAKernelComesFromTheOperationWithTheSameCutList) {
  const std::string list = thirty() + ", ...]";
  const auto groups =
      resolve_groups({{.name = "7", .ranks = list, .size = 32},
                      {.name = "7", .ranks = list, .start = 0, .stride = 1, .size = 32}},
                     {}, 64);
  EXPECT_EQ(groups[0].text, "7 (ranks 0..31)");
  EXPECT_EQ(groups[0].text, groups[1].text);
}

TEST(ProcessGroup, ConfigurationsOfEveryEraAreRead) {
  const auto groups = parse_configured_groups(
      R"([{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]},
          {"uid": "1", "pg_size": 2, "ranks": "[0, 1]"}, {"uid": 2, "pg_size": 2, "ranks": [1, 2, 3]}, 5])");
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_THAT(groups[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(groups[1].ranks, ElementsAre(0, 1));
  EXPECT_EQ(groups[2].name, "2");
  EXPECT_THAT(groups[2].ranks, IsEmpty());  // three ranks contradict the size of two
  EXPECT_THAT(parse_configured_groups("not JSON"), IsEmpty());
}

TEST(ProcessGroup, AbsurdSizesTakeNoMemory) {
  EXPECT_THAT(resolved({.name = "x", .ranks = "", .start = 0, .stride = 1, .size = 1 << 30}).ranks,
              IsEmpty());
}

}  // namespace
}  // namespace linerate::trace
