// One self-contained HTML page: no external resource, readable on a phone, on paper, light and
// dark. Its words and tables are plain HTML; a script of its own (page.js) draws the figures.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace linerate::report {

/// Plain text cells.
struct Table {
  std::vector<std::string> head;               // names of columns; of numbers: ">Step"
  std::vector<std::vector<std::string>> rows;  // [rows][columns]
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
  std::string title;               // a line
  std::string caption;             // what to see in it
  Drawing drawing;                 // the picture
  std::optional<Table> data = {};  // folded away under "Numbers"
};

/// A heading, paragraphs, figures, then an open table, and last what to know about its numbers.
struct Section {
  std::string title;                    // its heading
  std::vector<std::string> paragraphs;  // plain text
  std::vector<Figure> figures;          // in this order
  std::optional<Table> table;           // open, after the figures
  std::vector<std::string> notes = {};  // on its numbers
};

/// What to_html() prints.
struct Page {
  std::string title;                 // of page and window
  std::vector<std::string> sources;  // the documents it was made from
  std::string command;               // which made it
  std::string version;               // of linerate
  std::vector<Section> sections;     // in this order
};

/// change(text) for what a page says in words: paragraphs, notes, captions, cells of tables. Not
/// for its title, its sources and what figures draw.
void for_each_text(Page& page, const std::function<void(std::string&)>& change);

/// For element text and attribute values alike; control characters become blanks.
[[nodiscard]] std::string escape(std::string_view text);

/// Same page in, same bytes out. Every text is escaped.
[[nodiscard]] std::string to_html(const Page& page);

}  // namespace linerate::report
