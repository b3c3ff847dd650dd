// The best choice in each cell of a grid, as colour and as text.
#pragma once

#include <string>
#include <vector>

namespace linerate::report {

/// One cell. choice -1: nothing is defined there, the cell is drawn empty with a dash.
struct HeatCell {
  int choice = -1;    // index into HeatMap::choices
  bool tied = false;  // another choice cannot be told apart (intervals overlap): marked with ≈
  std::string value;  // second line, with unit: "12.4 ms"
};

struct HeatMap {
  std::string name;  // for screen readers
  std::string column_label, row_label;
  std::vector<std::string> columns, rows;
  std::vector<std::string> choices;  // in the order of their letters A, B, C …
  std::vector<HeatCell> cells;       // row by row, columns.size() * rows.size()
};

}  // namespace linerate::report
