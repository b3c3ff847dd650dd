// A chart of characters. All positions are dots: a character holds 2 x 4 of them, so 70 columns and
// 16 rows are 140 x 64 dots. Letters mark data points, and dots or letters the lines between them.
#include "linerate/report/terminal_curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "linerate/core/index.hpp"
#include "linerate/report/scale.hpp"

namespace linerate::report {
namespace {

// The drawing area. A cell holds braille dots, or a letter that covers them.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns),
        rows_(rows),
        dots_(to_index(columns * rows)),
        letters_(dots_.size(), 0) {}

  int dot_columns() const { return columns_ * 2; }
  int dot_rows() const { return rows_ * 4; }

  // Outside the area nothing is drawn.
  void dot(int x, int y) {
    if (x < 0 || y < 0 || x >= dot_columns() || y >= dot_rows()) return;
    // Unicode numbers the eight dots of a braille cell column by column, the fourth row last. An
    // example: the dots at the top left and at the bottom right are 0x01 + 0x80, which is the
    // character U+2881.
    constexpr unsigned char bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    dots_[cell(x, y)] |= bits[y % 4][x % 2];
  }
  void letter(int x, int y, char c) {
    if (x >= 0 && y >= 0 && x < dot_columns() && y < dot_rows()) letters_[cell(x, y)] = c;
  }
  std::string row(int r) const {
    std::string text;
    for (int c = 0; c < columns_; ++c) {
      const auto i = to_index(r * columns_ + c);
      if (letters_[i]) {
        text += letters_[i];
      } else if (dots_[i]) {  // U+2800 + bits, in UTF-8
        text += {static_cast<char>(0xE2), static_cast<char>(0xA0 | (dots_[i] >> 6)),
                 static_cast<char>(0x80 | (dots_[i] & 0x3F))};
      } else {
        text += ' ';
      }
    }
    return text.erase(text.find_last_not_of(' ') + 1);
  }

 private:
  std::size_t cell(int x, int y) const { return to_index(y / 4 * columns_ + x / 2); }
  int columns_, rows_;
  std::vector<unsigned char> dots_;
  std::vector<char> letters_;
};

// a to z, then A to Z; lines beyond the 52nd share a star.
char letter_of(std::size_t i) {
  return static_cast<char>(i < 26 ? 'a' + i : i < 52 ? 'A' + (i - 26) : '*');
}

std::string tick_label(double value) { return fmt::format("{:g}", value); }

// The range of the data. It starts inverted, so that the first value sets both ends.
struct Extent {
  double x_low = std::numeric_limits<double>::infinity(), x_high = -x_low, y_low = x_low,
         y_high = -x_low;
  bool empty() const { return x_low > x_high; }
};

// At least the chart's own range. A single value gets half a unit to each side, so that its line is
// in the middle.
Extent extent_of(const LineChart& chart, const std::vector<Series>& series) {
  Extent e;
  for (const Series& s : series)
    for (const Point& p : s.points)
      if (p.y) {
        e.x_low = std::min(e.x_low, p.x), e.x_high = std::max(e.x_high, p.x);
        e.y_low = std::min(e.y_low, *p.y), e.y_high = std::max(e.y_high, *p.y);
      }
  if (e.empty()) return e;
  if (chart.y_low) e.y_low = std::min(e.y_low, *chart.y_low);
  if (chart.y_high) e.y_high = std::max(e.y_high, *chart.y_high);
  if (e.y_low == e.y_high) e.y_low -= 0.5, e.y_high += 0.5;
  return e;
}

// A line from each point to the next one that is defined; an absent value between them leaves a
// gap. Steps are half a dot on the longer axis, so that rounding skips none. Letters come last:
// they are on top of this series' own dots.
void draw_series(Canvas& canvas, const Series& series, const Scale& x, const Scale& y, char letter,
                 bool ascii) {
  const Point* before = nullptr;
  for (const Point& p : series.points) {
    if (p.y && before) {
      const double x0 = x(before->x), y0 = y(*before->y), x1 = x(p.x), y1 = y(*p.y);
      const int steps =
          std::max(1, static_cast<int>(std::max(std::abs(x1 - x0), std::abs(y1 - y0)) * 2));
      for (int i = 0; i <= steps; ++i) {
        const int dx = static_cast<int>(std::lround(x0 + (x1 - x0) * i / steps));
        const int dy = static_cast<int>(std::lround(y0 + (y1 - y0) * i / steps));
        ascii ? canvas.letter(dx, dy, letter) : canvas.dot(dx, dy);
      }
    }
    before = p.y ? &p : nullptr;
  }
  for (const Point& p : series.points)
    if (p.y)
      canvas.letter(static_cast<int>(std::lround(x(p.x))), static_cast<int>(std::lround(y(*p.y))),
                    letter);
}

// Labels centred below their ticks; one that would touch its neighbour is left out. Two dots are a
// character wide, so positions are halved. Labels at the ends are pushed inside.
std::string x_axis_labels(const std::vector<double>& ticks, const Scale& x, int indent,
                          int columns) {
  std::string line(to_index(indent + columns), ' ');
  int free_from = 0;
  for (const double tick : ticks) {
    const std::string label = tick_label(tick);
    const int size = static_cast<int>(label.size());
    int at = indent + static_cast<int>(std::lround(x(tick) / 2)) - size / 2;
    at = std::clamp(at, 0, std::max(0, indent + columns - size));
    if (at < free_from) continue;
    line.replace(to_index(at), label.size(), label);
    free_from = at + size + 2;
  }
  return line.erase(line.find_last_not_of(' ') + 1);
}

// Chart labels use subscripts that an ASCII terminal lacks. What else it lacks is left out.
std::string plain(std::string text, bool ascii) {
  if (!ascii) return text;
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"₁", "_1"}, {"ₙ", "_n"}})
    for (std::size_t at; (at = text.find(from)) != std::string::npos;)
      text.replace(at, from.size(), to);
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  return text;
}

}  // namespace

// Marks of the y axis first, as the widest of them says how far the axis is from the left. A
// character is kept free at both ends: letters at the first and last point would touch the axis.
std::string terminal_curve(const LineChart& chart, const TerminalOptions& options) {
  std::vector<Series> series;
  for (const Series& s : chart.series) series.push_back(drawable(s, chart.log_x));
  const Extent e = extent_of(chart, series);
  if (e.empty()) return chart.name + ": no defined value to draw\n";

  const int rows = std::max(4, options.height);
  const std::vector<double> y_ticks = linear_ticks(e.y_low, e.y_high, std::min(6, rows / 2));
  std::size_t label_width = 0;
  for (const double tick : y_ticks) label_width = std::max(label_width, tick_label(tick).size());
  const int indent = static_cast<int>(label_width) + 2;
  const int columns = std::max(30, options.width) - indent;
  Canvas canvas(columns, rows);
  const double right = canvas.dot_columns() - 3;
  const Scale x = chart.log_x ? Scale::logarithmic(e.x_low, e.x_high, 2, right)
                              : Scale::linear(e.x_low, e.x_high, 2, right);
  const Scale y = Scale::linear(e.y_low, e.y_high, canvas.dot_rows() - 1, 0);
  for (std::size_t i = 0; i < series.size(); ++i)
    draw_series(canvas, series[i], x, y, letter_of(i), options.ascii);

  std::vector<std::string> left(to_index(rows));
  for (const double tick : y_ticks) left[to_index(std::lround(y(tick))) / 4] = tick_label(tick);
  std::string out = plain(chart.y_label, options.ascii) + "\n";
  for (int r = 0; r < rows; ++r) {
    const std::string& label = left[to_index(r)];
    const char* axis = options.ascii ? (label.empty() ? "|" : "+") : (label.empty() ? "│" : "┤");
    out += fmt::format("{:>{}} {}{}\n", label, label_width, axis, canvas.row(r));
  }
  const std::vector<double> x_ticks = chart.log_x ? log_ticks(e.x_low, e.x_high, columns / 8)
                                                  : linear_ticks(e.x_low, e.x_high, columns / 8);
  out += std::string(label_width + 1, ' ') + (options.ascii ? "+" : "└");
  for (int c = 0; c < columns; ++c) out += options.ascii ? "-" : "─";
  out += "\n" + x_axis_labels(x_ticks, x, indent, columns) + "\n";
  const std::string label = plain(chart.x_label, options.ascii);
  const int blanks = indent + std::max(0, (columns - static_cast<int>(label.size())) / 2);
  out += std::string(to_index(blanks), ' ') + label + "\n";
  for (std::size_t i = 0; i < series.size(); ++i)
    out += fmt::format("  {} {}\n", letter_of(i), plain(series[i].name, options.ascii));
  return out;
}

bool shows_unicode(const std::string& locale) {
  std::string lower;
  for (const char c : locale)
    if (c != '-' && c != '_')
      lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower.find("utf8") != std::string::npos;
}

}  // namespace linerate::report
