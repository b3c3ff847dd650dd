// Private: which columns a row of nccl-tests has.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace linerate::bench_logs {

/// Columns of one group, counted from its time.
struct Group {
  int words = 0;
  int algbw = -1, busbw = -1, low = -1, high = -1, wrong = -1, check = -1;
};

struct Layout {
  bool redop = false, root = false;
  std::vector<Group> groups;    // out of place, in place
  bool is_of_2017 = false;      // the header says "bytes" and "N"
  bool in_place_alone = false;  // the only group is that of in place

  bool known() const { return !groups.empty(); }
  std::size_t group_words() const {
    std::size_t words = 0;
    for (const Group& g : groups) words += static_cast<std::size_t>(g.words);
    return words;
  }
};

/// The header's own words: "size count type redop root time algbw busbw #wrong time algbw busbw
/// #wrong". Nothing known where one of size, count, type, time or a bandwidth is missing.
Layout layout_of(const std::vector<std::string_view>& words);
/// Without a header (a row quoted in prose): what every era from 2019 on prints.
Layout usual_layout();

}  // namespace linerate::bench_logs
