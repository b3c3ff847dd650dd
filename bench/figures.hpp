// Benches share how they time a work, how they check a result before its time counts, and how they
// end. A figure is printed next to its goal, a line each, and all figures as JSON at the end.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"

namespace linerate::bench {

inline double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Throws InternalError where a result is wrong.
struct Require {
  const char* bench;

  void operator()(bool holds, const std::string& what) const {
    if (!holds) throw InternalError(fmt::format("bench/{}: wrong result: {}", bench, what));
  }
};

/// The exit status of a program that does this and nothing else.
inline int exit_status(const auto& work) {
  try {
    work();
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return e.exit_code();
  }
}

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
