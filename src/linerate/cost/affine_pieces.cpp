// Cuts a cost curve into straight pieces, for searches that prune by them (plan's optimal fusion).
// Between two joints a curve is a least or a largest of straight lines, so it bends where two of
// them meet. A stretch is cut as follows. Draw the straight line from end to end. If the curve lies
// on it, the stretch is one piece. Otherwise take the tangents of both ends and cut where they
// meet, then treat both parts alike.
//
// An example: min(1 + 2 S, 5 + S) between 0 and 10. The line from end to end is not the curve. The
// tangents are 1 + 2 S and 5 + S, and they meet at 4. Both parts are straight, so two pieces come
// out after three tests. With three lines the first cut may miss a bend, and the next cuts find it.
#include "linerate/cost/affine_pieces.hpp"

#include <algorithm>
#include <cmath>

namespace linerate::cost {
namespace {

constexpr int kMostBends = 24;            // in a row, between two joints
constexpr std::size_t kMostPieces = 256;  // between two joints: more are rounding, not bends

// The straight line through (a, at_a) and (to, at_to), as the piece from `from` to `to`.
AffinePiece through(double from, double to, double a, double at_a, double at_to) {
  const double beta = to > a ? (at_to - at_a) / (to - a) : 0;
  return {from, to, at_to - beta * to, beta};
}

/// Cuts what lies between two joints and appends its pieces.
class Stretch {
 public:
  Stretch(const CostCurve& curve, std::vector<AffinePiece>& pieces)
      : curve_(curve), pieces_(pieces) {}

  void split_all(double from, double to) {
    most_ = pieces_.size() + kMostPieces;
    split(from, to);
  }

 private:
  // `bends` counts the cuts on the way to this part. Rounding may make a straight part look bent,
  // so the number of cuts in a row and the number of pieces have limits.
  void split(double from, double to, int bends = 0) {
    // Just past `from`, where a piece of its own may end.
    const double near = (to - from) / (1 << 20), begin = from + near;
    const double at_begin = curve_.seconds(begin), at_to = curve_.seconds(to);
    const AffinePiece whole = through(from, to, begin, at_begin, at_to);
    const bool is_speck = to - from < 1e-9 * to;  // no two sizes apart
    if (bends == kMostBends || pieces_.size() >= most_ || is_speck || is_straight(whole)) {
      pieces_.push_back(whole);
      return;
    }
    // A thousandth of it: what is rounded of shorter ones moves the bend.
    const double base = (to - from) / (1 << 10);
    const AffinePiece left = tangent(begin, begin + base), right = tangent(to - base, to);
    double bend = (right.alpha_s - left.alpha_s) / (left.beta_s_per_byte - right.beta_s_per_byte);
    if (!(bend > begin && bend < to)) bend = from + (to - from) / 2;
    split(from, bend, bends + 1);
    split(bend, to, bends + 1);
  }

  AffinePiece tangent(double a, double b) const {
    return through(a, b, a, curve_.seconds(a), curve_.seconds(b));
  }
  // Whether the curve lies on the line at an eighth, a half and seven eighths of the way. A bend
  // lifts or lowers everything between the ends, so three sizes are enough.
  bool is_straight(const AffinePiece& p) const {
    for (const double part : {0.125, 0.5, 0.875}) {
      const double bytes = p.from_bytes + part * (p.to_bytes - p.from_bytes);
      const double seconds = curve_.seconds(bytes);
      if (std::abs(p.seconds(bytes) - seconds) > 1e-12 * std::abs(seconds)) return false;
    }
    return true;
  }

  const CostCurve& curve_;
  std::vector<AffinePiece>& pieces_;
  std::size_t most_ = 0;  // of pieces_, when this stretch is done roughly
};

}  // namespace

std::vector<AffinePiece> affine_pieces(const CostCurve& curve, double most) {
  std::vector<AffinePiece> pieces;
  Stretch stretch(curve, pieces);
  double from = 0;
  for (const double joint : curve.joints()) {
    if (joint <= from || joint >= most) continue;
    stretch.split_all(from, joint);
    from = joint;
  }
  stretch.split_all(from, std::max(most, from + 1));
  return pieces;
}

}  // namespace linerate::cost
