// Private: which test of nccl-tests printed the rows of a run, and on how many ranks. A log may
// have lost its title, have a wrong one, or have those of several runs. Rows cannot lie as easily,
// since their bandwidths were computed with the true test and the true number of ranks.
#pragma once

#include <string>
#include <vector>

#include "linerate/bench_logs/collective_sample.hpp"
#include "linerate/bench_logs/possible_ranks.hpp"

namespace linerate::bench_logs {

/// Thrown inside this module: why readable rows of a log are not used.
struct RowsNotUsed {
  std::string why;
};

/// A test that can have printed all of the rows, and on how many ranks.
struct PossibleTest {
  const BandwidthTest* test;
  RankRange ranks;
};

/// One run, or an ascending stretch of one, under judgement. Borrows all three.
class Judge {
 public:
  Judge(const BandwidthRun& run, Rows rows, double unit_s, const CollectiveLogOptions& options);

  bool has_candidates() const { return !candidates_.empty(); }
  /// Throws RowsNotUsed if rows and titles leave none or several tests, or one without a
  /// Collective.
  const PossibleTest& decide() const;

 private:
  bool is_named(const BandwidthTest& test) const;
  const PossibleTest* candidate_of(const BandwidthTest* test) const;
  const PossibleTest* asked_for() const;
  const PossibleTest* titled() const;
  const PossibleTest* by_rows() const;
  std::string impossible() const;

  const BandwidthRun& run_;
  Rows rows_;
  const CollectiveLogOptions& options_;
  std::vector<PossibleTest> candidates_;
};

}  // namespace linerate::bench_logs
