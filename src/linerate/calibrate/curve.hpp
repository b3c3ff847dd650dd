// Turns samples of one collective into segments: three ways to draw a curve through measured times.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "linerate/calibrate/regimes.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// lines: one relative alpha-beta line a run. joined: straight from sample to sample. smooth:
/// between two switches, the deviation from that regime's line, interpolated by a monotone cubic
/// over log size.
enum class CurveShape { lines, joined, smooth };
inline constexpr std::array kCurveShapes = {CurveShape::lines, CurveShape::joined,
                                            CurveShape::smooth};
constexpr std::string_view name_of(CurveShape s) {
  return s == CurveShape::lines ? "lines" : s == CurveShape::joined ? "joined samples" : "smooth";
}

/// The structure found in the samples, shared by all shapes.
struct Structure {
  explicit Structure(std::span<const doc::CostSample> samples);

  RelativeLines lines;
  std::vector<Run> runs;
  std::vector<Switch> switches;
};

/// Ascending, touching segments from 0 to twice the largest size; low = high = 1. The first and the
/// last one extrapolate with the slope of the nearest samples, never below a slope of 0.
std::vector<doc::CostSegment> draw(std::span<const doc::CostSample> samples,
                                   const Structure& structure, CurveShape shape);

}  // namespace linerate::calibrate
