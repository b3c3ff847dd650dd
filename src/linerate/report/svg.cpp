#include "linerate/report/svg.hpp"

#include <fmt/format.h>

#include <iterator>

namespace linerate::report {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Advance widths in em, rounded up, by class of character.
double advance(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0xE2) return 1.0;  // arrows, CJK and the like
  if (byte >= 0x80) return 0.66;
  if (std::string_view("mwMW@%+=<>~").find(c) != std::string_view::npos) return 0.92;
  if (std::string_view("ijl.,:;'|! ftr()[]/-").find(c) != std::string_view::npos) return 0.4;
  return c >= 'A' && c <= 'Z' ? 0.72 : 0.635;
}

std::string with_tooltip(std::string_view element, std::string_view tooltip) {
  if (tooltip.empty()) return fmt::format("<{}/>\n", element);
  return fmt::format("<{}><title>{}</title></{}>\n", element, escape(tooltip),
                     element.substr(0, element.find(' ')));
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
    }
  }
  return out;
}

double text_width(std::string_view text, double font_size) {
  double em = 0;
  for (const char c : text)
    if (!is_continuation(c)) em += advance(c);
  return em * font_size;
}

std::string shortened(std::string_view text, double font_size, double width) {
  if (text_width(text, font_size) <= width) return std::string(text);
  const double room = width - font_size;  // the ellipsis
  double used = 0;
  std::size_t kept = 0, letters = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t next = i + 1;
    while (next < text.size() && is_continuation(text[next])) ++next;
    used += advance(text[i]) * font_size;
    if (used > room) break;
    kept = i = next;
    ++letters;
  }
  return letters < 3 ? "" : std::string(text.substr(0, kept)) + "…";
}

std::string marker_path(double x, double y, int shape) {
  switch (shape % 6) {
    case 0:
      return fmt::format("M{:.1f} {:.1f}m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z", x, y);
    case 1:
      return fmt::format("M{:.1f} {:.1f}m-3.2-3.2h6.4v6.4h-6.4z", x, y);
    case 2:
      return fmt::format("M{:.1f} {:.1f}m0-4.2l4.2 7.4h-8.4z", x, y);
    case 3:
      return fmt::format("M{:.1f} {:.1f}m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z", x, y);
    case 4:
      return fmt::format("M{:.1f} {:.1f}m0 4.2l4.2-7.4h-8.4z", x, y);
    default:
      return fmt::format(
          "M{:.1f} {:.1f}m-1.3-4.2h2.6v2.9h2.9v2.6h-2.9v2.9h-2.6v-2.9h-2.9v-2.6h2.9z", x, y);
  }
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view style) {
  fmt::format_to(std::back_inserter(body_),
                 "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n",
                 x1, y1, x2, y2, style);
}

void Svg::rect(double x, double y, double width, double height, std::string_view style,
               std::string_view tooltip) {
  body_ += with_tooltip(
      fmt::format("rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" class=\"{}\"",
                  x, y, width, height, style),
      tooltip);
}

void Svg::text(double x, double y, std::string_view text, Anchor anchor, std::string_view style) {
  constexpr std::string_view anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  fmt::format_to(std::back_inserter(body_), "<text x=\"{:.1f}\" y=\"{:.1f}\"{}", x, y,
                 anchors[static_cast<int>(anchor)]);
  if (!style.empty()) fmt::format_to(std::back_inserter(body_), " class=\"{}\"", style);
  body_ += ">" + escape(text) + "</text>\n";
}

void Svg::path(std::string_view data, std::string_view style) {
  fmt::format_to(std::back_inserter(body_), "<path d=\"{}\" class=\"{}\"/>\n", data, style);
}

void Svg::marker(double x, double y, int shape, std::string_view style, std::string_view tooltip) {
  body_ += with_tooltip(fmt::format("path d=\"{}\" class=\"{}\"", marker_path(x, y, shape), style),
                        tooltip);
}

std::string Svg::str(std::string_view name) const {
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n", width_,
      height_, escape(name), body_);
}

}  // namespace linerate::report
