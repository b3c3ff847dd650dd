// The log of Zhang et al. has waits between gradients: in each batch a line "wait_us,bytes" for
// each gradient in ready order. Ready times are running sums of the mean waits. With waits of 100,
// 50 and 70 us three gradients are ready at 100, 150 and 220 us, and backward ends with the last
// one.
#include "linerate/trace/per_gradient/per_gradient.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/trace/importer/importer.hpp"

namespace linerate::trace {
namespace {

constexpr std::int64_t kMostGradients = 10'000'000;

std::string place(const InputFile& input) {
  return fmt::format("{}:{}", input.name(), input.line_number());
}

std::string first_words(std::string_view line) {
  return line.size() > 60 ? printable(line.substr(0, 60)) + "..." : printable(line);
}

bool parse_pair(std::string_view line, double& first, double& second) {
  const std::size_t comma = line.find(',');
  if (comma == std::string_view::npos) return false;
  const std::string_view a = trim(line.substr(0, comma)), b = trim(line.substr(comma + 1));
  const auto whole = [](std::string_view s, double& v) {
    const auto [end, status] = std::from_chars(s.data(), s.data() + s.size(), v);
    return status == std::errc{} && end == s.data() + s.size() && std::isfinite(v);
  };
  return whole(a, first) && whole(b, second);
}

std::int64_t count_line(InputFile& input, std::string_view what) {
  std::string_view line;
  if (!input.next_line(line))
    throw InputError(
        input.name(),
        fmt::format("ends before the {} (line 2 holds batches, line 3 gradients)", what));
  std::int64_t n = 0;
  const std::string_view t = trim(line);
  const auto [end, status] = std::from_chars(t.data(), t.data() + t.size(), n);
  if (status != std::errc{} || end != t.data() + t.size() || n < 1 || n > kMostGradients)
    throw InputError(place(input),
                     fmt::format("expected the {}, found \"{}\"", what, first_words(line)));
  return n;
}

void read_batch(InputFile& input, std::int64_t batch, doc::Workload& w,
                std::vector<double>& waits) {
  for (std::size_t i = 0; i < w.gradients.size(); ++i) {
    std::string_view line;
    double wait_us = 0, bytes = 0;
    if (!input.next_line(line))
      throw InputError(
          place(input),
          fmt::format("ends at gradient {} of {} in batch {}, so the log is cut off; copy it again",
                      i + 1, w.gradients.size(), batch + 1));
    if (!parse_pair(line, wait_us, bytes))
      throw InputError(place(input),
                       fmt::format("expected \"wait_us,bytes\", found \"{}\"", first_words(line)));
    if (wait_us < 0 || bytes < 4 || bytes > 1e15 || std::fmod(bytes, 4) != 0)
      throw InputError(place(input),
                       fmt::format("expected a wait >= 0 and a size that is a multiple of 4 bytes "
                                   "(fp32), found \"{}\"",
                                   first_words(line)));
    doc::Gradient& g = w.gradients[i];
    const auto elements = static_cast<std::int64_t>(bytes) / 4;
    if (batch > 0 && g.elements != elements)
      throw InputError(place(input),
                       fmt::format("gradient {} has {} elements in batch 1 and {} in batch {}",
                                   i + 1, g.elements, elements, batch + 1));
    g.elements = elements;
    waits[i] += wait_us;
  }
}

/// The log has only the backward pass. A given time covers the whole step, or forward and backward:
/// then forward is the rest of it, and the update stays unknown.
void apply_step_time(doc::Workload& w, const PerGradientOptions& options, const std::string& name) {
  if (!options.step_time_s) return;
  const double t = *options.step_time_s;
  if (t < w.backward_s)
    throw InputError(name,
                     fmt::format("--step-time: {} is shorter than the log's backward pass of {}",
                                 format_time(t), format_time(w.backward_s)));
  if (options.covers == StepTimeCovers::step)
    w.step_s = t;
  else
    w.forward_s = t - w.backward_s;  // the update stays unknown
}

}  // namespace

/// Line 1 is prose, lines 2 and 3 are counts, line 4 is a pair of numbers. Four lines in the head
/// of a file are enough to tell it from the logs of benchmarks.
bool is_per_gradient_log(std::string_view head) {
  std::istringstream text{std::string(head)};
  std::array<std::string, 4> lines;
  for (std::string& line : lines) std::getline(text, line);
  const auto is_count = [](std::string_view s) {
    return !s.empty() && s.size() < 9 &&
           s.find_first_not_of("0123456789") == std::string_view::npos;
  };
  double a = 0, b = 0;
  return is_count(trim(lines[1])) && is_count(trim(lines[2])) && parse_pair(lines[3], a, b);
}

namespace {

doc::Workload read_log(InputFile& input, const PerGradientOptions& options) {
  std::string_view line;
  input.next_line(line);  // prose
  const std::int64_t batches = count_line(input, "number of batches");
  const std::int64_t count = count_line(input, "number of gradients");
  doc::Workload w;
  w.name = std::filesystem::path(input.name()).stem().stem().string();
  w.source = fmt::format("per-gradient log {}", input.name());
  w.gradients.resize(to_index(count));
  std::vector<double> waits(w.gradients.size());
  for (std::int64_t b = 0; b < batches; ++b) read_batch(input, b, w, waits);
  double ready = 0;
  for (std::size_t i = 0; i < w.gradients.size(); ++i) {
    doc::Gradient& g = w.gradients[i];
    ready += waits[i] * 1e-6 / static_cast<double>(batches);
    g.ready_s = ready;
    g.name = fmt::format("gradient-{}", i);  // the log has no names
    g.registration =
        static_cast<int>(w.gradients.size() - 1 - i);  // written in reverse registration order
  }
  w.backward_s = ready;
  apply_step_time(w, options, input.name());
  if (options.add_cost) {
    InputFile table = InputFile::open(*options.add_cost);
    w.add_cost = read_add_cost(table);
  }
  return w;
}

}  // namespace

doc::Workload read_per_gradient_log(InputFile& input, const PerGradientOptions& options) {
  try {
    return read_log(input, options);
  } catch (const InputError& e) {
    input.rethrow_with_cause(e.what());
  }
}

std::vector<doc::AddCost> read_add_cost(InputFile& input) {
  std::vector<doc::AddCost> table;
  std::string_view line;
  while (input.next_line(line)) {
    if (trim(line).empty()) continue;
    doc::AddCost row;
    if (!parse_pair(line, row.bytes, row.seconds) || row.bytes <= 0 || row.seconds < 0)
      throw InputError(place(input),
                       fmt::format("expected \"bytes,seconds\", found \"{}\"", first_words(line)));
    if (!table.empty() && row.bytes <= table.back().bytes)
      throw InputError(place(input),
                       fmt::format("expected more than {} bytes (ascending), found {}",
                                   table.back().bytes, row.bytes));
    table.push_back(row);
  }
  if (table.empty()) throw InputError(input.name(), "no \"bytes,seconds\" line in it");
  return table;
}

std::vector<Importer> per_gradient_importers() {
  return {
      {.name = "per-gradient log",
       .matches =
           [](const Head& head) { return !head.is_json() && is_per_gradient_log(head.bytes()); },
       .advice = "a per-gradient log holds no events to explain; write linerate import {file} "
                 "-o workload.json to make a Workload",
       .read_workload = read_per_gradient_log}};
}

}  // namespace linerate::trace
