// Private: which test of nccl-tests printed the rows of a run, and on how many ranks.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/bench_logs/collective_log.hpp"
#include "linerate/bench_logs/possible_ranks.hpp"

namespace linerate::bench_logs {

/// The reason for leaving out rows of tests, by name, that no training step uses.
std::string not_used(std::string_view names);

/// One run, or an ascending stretch of one, under judgement. Borrows all three.
class Judge {
 public:
  Judge(const BandwidthRun& run, Rows rows, double unit_s, const CollectiveLogOptions& options);

  /// Whether one test on one number of ranks can have printed all of the rows.
  bool is_one() const { return !possible_.empty(); }
  /// nullptr with the reason in `why` where the rows and the titles leave several.
  const BandwidthTest* test(std::string& why) const;
  RankRange ranks(const BandwidthTest& test) const;
  std::string impossible() const;

 private:
  bool is_titled(const BandwidthTest& test) const;
  bool fits(const BandwidthTest& test) const { return !ranks(test).empty(); }
  const BandwidthTest* asked(Collective collective, std::string& why) const;
  const BandwidthTest* by_rows(std::string& why) const;

  const BandwidthRun& run_;
  Rows rows_;
  const CollectiveLogOptions& options_;
  std::vector<std::pair<const BandwidthTest*, RankRange>> possible_;
};

}  // namespace linerate::bench_logs
