#include "linerate/report/row_frame.hpp"

#include <algorithm>

namespace linerate::report {

RowFrame::RowFrame(Layout layout, const Needs& needs)
    : wide_(layout == Layout::wide),
      width_(width_of(layout)),
      row_height_(needs.row_height),
      bottom_(kTop + needs.row_height * static_cast<double>(needs.rows)),
      name_room_(wide_ ? std::min(needs.names, width_ * 0.45) : 0),
      left_(wide_ ? name_room_ + 12 : 4),
      right_(width_ - needs.values - 16),
      highest_(needs.highest > 0 ? needs.highest : 1),
      x_(Scale::linear(0, highest_, left_, right_)) {}

void RowFrame::draw_axis(Svg& svg, const std::string& label,
                         const std::function<std::string(double)>& format_x) const {
  for (const double tick : linear_ticks(0, highest_, wide_ ? 8 : 4)) {
    svg.line(x_(tick), 4, x_(tick), bottom_, "grid");
    const std::string text = format_x(tick);
    svg.text(std::max(x_(tick), text_width(text, kFontSize) / 2), bottom_ + 16, text,
             Anchor::middle, "tick");
  }
  svg.text((left_ + right_) / 2, bottom_ + 36, label, Anchor::middle, "label");
}

void RowFrame::draw_name(Svg& svg, std::size_t row, double base_line, const std::string& name,
                         const std::string& style) const {
  svg.text(wide_ ? left_ - 10 : 0, wide_ ? base_line : top_of(row) + 14,
           shortened(name, kFontSize, wide_ ? name_room_ : width_ - 8),
           wide_ ? Anchor::end : Anchor::start, style);
}

}  // namespace linerate::report
