// What a bench found beside what is asked of it: a line each, and all as JSON at the end.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace linerate::bench {

struct Figure {
  std::string what;
  double value, goal;
  std::string unit;
  bool at_least = false;

  bool met() const { return at_least ? value >= goal : value <= goal; }
};

inline std::vector<Figure> figures;

inline void report(Figure figure) {
  fmt::print("{:<62} {:>10.4g} {:<8} goal {} {:g}  {}\n", figure.what, figure.value, figure.unit,
             figure.at_least ? ">=" : "<=", figure.goal, figure.met() ? "ok" : "SHORT");
  figures.push_back(std::move(figure));
}

/// Where the first argument is --json.
inline void print_json_if_asked(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != "--json") return;
  std::string json;
  for (const Figure& f : figures)
    json += fmt::format("{}{{\"what\":\"{}\",\"value\":{},\"goal\":{},\"unit\":\"{}\"}}",
                        json.empty() ? "" : ",", f.what, f.value, f.goal, f.unit);
  fmt::print("{{\"figures\":[{}]}}\n", json);
}

}  // namespace linerate::bench
