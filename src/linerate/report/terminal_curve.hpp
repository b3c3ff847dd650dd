// A line chart in a terminal: braille dots (2 x 4 a character), or plain ASCII if the terminal
// cannot show them.
#pragma once

#include <string>

#include "linerate/report/line_chart.hpp"

namespace linerate::report {

struct TerminalOptions {
  int width = 72;      // characters, axis labels included; at least 30
  int height = 16;     // rows of the drawing area; at least 4
  bool ascii = false;  // letters instead of braille
};

/// The chart as lines of text, each ending in '\n', followed by a key: braille lines carry their
/// letter at every data point, ASCII lines are drawn with it. If two lines meet, the later one is
/// seen. Gaps stay empty.
std::string terminal_curve(const LineChart& chart, const TerminalOptions& options = {});

/// Does this locale (value of LC_ALL, LC_CTYPE or LANG, the first that is set) show UTF-8?
bool shows_unicode(const std::string& locale);

}  // namespace linerate::report
