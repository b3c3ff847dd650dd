// One self-contained HTML page: no external resource, readable on a phone, on paper, light and
// dark. Its words and tables are plain HTML; a script of its own (page.js) draws the figures.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace linerate::report {

/// Plain text cells; columns named in `numbers` are aligned right.
struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> numbers;  // by column; shorter: the rest is text
};

/// What a chart shows, as data for the script of the page, which draws it.
struct Drawing {
  std::string name;  // for screen readers
  /// May stand inside a script element whatever the names in it: no "<", valid UTF-8. Empty: the
  /// chart has nothing to draw.
  std::string json;
  std::string nothing;  // what the page says then
};

/// A picture with its heading and caption; the table holds the same numbers for those who cannot
/// see it.
struct Figure {
  std::string title;
  std::string caption;
  Drawing drawing;
  std::optional<Table> data = {};  // folded away under "Numbers"
};

/// A heading, paragraphs, figures, then an open table, and last what to know about its numbers.
struct Section {
  std::string title;
  std::vector<std::string> paragraphs;
  std::vector<Figure> figures;
  std::optional<Table> table;
  std::vector<std::string> notes = {};
};

struct Page {
  std::string title;
  std::vector<std::string> sources;  // the documents it was made from
  std::string command;               // which made it
  std::string version;               // of linerate
  std::vector<Section> sections;
};

/// For element text and attribute values alike; control characters become blanks.
std::string escape(std::string_view text);

/// Same page in, same bytes out. Every text is escaped.
std::string to_html(const Page& page);

}  // namespace linerate::report
