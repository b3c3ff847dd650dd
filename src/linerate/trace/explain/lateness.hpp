// How much longer one rank takes on its own than the others, from one moment at which they all met
// to the next: how late it comes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "linerate/trace/explain/program.hpp"

namespace linerate::trace {

/// By lane and point: own time that is left out.
using Cuts = std::vector<std::vector<std::int64_t>>;

/// Over one stretch of a lane: from waits that all ranks have to the next such waits, however many
/// communications were asked for between.
struct Late {
  std::int32_t lane = -1;
  std::int64_t step = -1;  // number of the step of its first communication; -1 unknown
  std::int64_t ns = 0;     // against the rank in the middle of the others; negative: it came before
  std::array<std::int64_t, kPhases> by_phase{};  // sums to ns
};

class Lateness {
 public:
  explicit Lateness(const Program& program);

  /// Every rank against the one in the middle (of two: the earlier one) of the others.
  std::vector<Late> all() const;
  /// What, added to `cuts`, lets every rank come with the first one; of `only`: lets this lane come
  /// with the one in the middle of the others. The cuts are where it takes longer than they do.
  void cut(Cuts& cuts, std::optional<std::int32_t> only = std::nullopt) const;

 private:
  /// Own time up to an issue that all its ranks have in common; or (collective -1) from the last of
  /// them to the last wait.
  struct Piece {
    std::int32_t collective = -1;
    std::size_t first = 0, last = 0;  // points
  };
  struct Stretch {
    std::int32_t collective = -1;  // the first one that is asked for, else the first one waited for
    bool opens = false;            // the first of its lane: ranks begin apart
    std::vector<Piece> pieces;
  };
  /// By lane and stretch: own time without the cuts.
  using Totals = std::vector<std::vector<std::int64_t>>;

  void add_stretches(std::size_t lane, const std::vector<bool>& met,
                     const std::vector<bool>& begins);
  void add_stretch(std::size_t lane, Stretch stretch);
  std::int64_t length(std::int32_t lane, const Piece& piece, const Cuts& cuts) const;
  Totals totals(const Cuts& cuts) const;
  const Stretch* stretch_of(std::int32_t lane, std::int32_t collective) const;
  std::int64_t total_of(const Totals& totals, std::int32_t lane, std::int32_t collective) const;
  /// The lane against which `lane` is late at this collective: -1 where none can be compared.
  std::int32_t reference(std::int32_t lane, std::int32_t collective, bool first,
                         const Totals& totals) const;
  void cut_stretch(const Stretch& own, std::int32_t lane, std::int32_t other, std::int64_t late,
                   const Cuts& before, Cuts& cuts) const;
  void cut_piece(std::int32_t lane, const Piece& piece, std::int64_t ns, Cuts& cuts) const;
  void add_phases(Late& late, std::int32_t lane, const Stretch& stretch, int sign) const;

  const Program& program_;
  std::vector<std::vector<Stretch>> stretches_;        // by lane
  std::vector<std::vector<std::int32_t>> stretch_at_;  // by lane and Stretch::collective; -1: none
};

/// Of the size of the program's points, all 0.
Cuts no_cuts(const Program& program);

}  // namespace linerate::trace
