// What charts of one row a name share: room for names, an axis from zero, grid, ticks and label.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "linerate/report/scale.hpp"
#include "linerate/report/svg.hpp"

namespace linerate::report {

/// What stands around the rows. Narrow: a name stands above its row, so that long strategies keep
/// the axis wide.
class RowFrame {
 public:
  struct Needs {
    double highest = 0;            // of the axis; 0 or less: 1
    double names = 0, values = 0;  // widest of each, in pixels
    double row_height = 0;
    std::size_t rows = 0;
  };
  RowFrame(Layout layout, const Needs& needs);

  bool wide() const { return wide_; }
  double width() const { return width_; }
  double height() const { return bottom_ + 44; }
  /// Of the axis.
  double right() const { return right_; }
  const Scale& x() const { return x_; }
  double top_of(std::size_t row) const { return kTop + row_height_ * static_cast<double>(row); }

  /// Grid, ticks and the label below them.
  void draw_axis(Svg& svg, const std::string& label,
                 const std::function<std::string(double)>& format_x) const;
  /// `base_line`: of the name beside its row.
  void draw_name(Svg& svg, std::size_t row, double base_line, const std::string& name,
                 const std::string& style = "") const;

 private:
  static constexpr double kTop = 8;

  bool wide_;
  double width_, row_height_, bottom_, name_room_, left_, right_, highest_;
  Scale x_;
};

}  // namespace linerate::report
