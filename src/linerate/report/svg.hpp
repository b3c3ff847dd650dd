// Scalable pictures as text: a thin writer of the few SVG elements that the charts use. Colours are
// classes (c0 … c7, defined once in page_style), so that one picture serves light and dark pages.
#pragma once

#include <string>
#include <string_view>

namespace linerate::report {

/// For element text and attribute values alike; control characters become blanks.
std::string escape(std::string_view text);

/// An upper estimate of the width in user units (DejaVu Sans, the widest of the usual system
/// fonts).
double text_width(std::string_view text, double font_size);
/// The text, or its longest beginning with an ellipsis that is no wider; empty when not even three
/// letters fit.
std::string shortened(std::string_view text, double font_size, double width);

enum class Anchor { start, middle, end };

/// The two sizes every chart is drawn in. A picture scaled from 800 to 360 pixels would have
/// 5-pixel text, so the page holds both and the style sheet shows the one that fits.
enum class Layout { wide, narrow };
constexpr double width_of(Layout layout) { return layout == Layout::wide ? 840 : 358; }
inline constexpr double kFontSize = 12;  // of axis and label text, in both layouts

/// Coordinates in user units, y downwards; `style` is a list of CSS classes.
class Svg {
 public:
  Svg(double width, double height) : width_(width), height_(height) {}

  void line(double x1, double y1, double x2, double y2, std::string_view style);
  void rect(double x, double y, double width, double height, std::string_view style,
            std::string_view tooltip = "");
  void text(double x, double y, std::string_view text, Anchor anchor, std::string_view style = "");
  /// `data` is path data made by the caller from numbers only.
  void path(std::string_view data, std::string_view style);
  /// A data point; `shape` picks one of six outlines, told apart without colour.
  void marker(double x, double y, int shape, std::string_view style, std::string_view tooltip = "");

  /// The <svg> element; `name` is what a screen reader says.
  std::string str(std::string_view name) const;

 private:
  double width_, height_;
  std::string body_;
};

/// Path data of one of six marker outlines around (x, y).
std::string marker_path(double x, double y, int shape);

}  // namespace linerate::report
