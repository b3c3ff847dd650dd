// Says before any training which layers K-FAC takes. A large network has hundreds of layers, so
// those whose names differ only in numbers, and whose factors have the same sizes, share a line.
#include "linerate/zoo/registration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "linerate/core/error.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/plan/registry.hpp"
#include "linerate/zoo/network.hpp"
#include "linerate/zoo/preconditioner.hpp"

namespace linerate::zoo {
namespace {

using torch_adapter::RegisteredLayer;

/// "encoder.layer.7.output" -> "encoder.layer.*.output": each number becomes a star.
std::string without_numbers(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    const bool whole_part = digit && (pattern.empty() || pattern.back() == '.');
    if (whole_part)
      pattern += '*';
    else if (!digit || pattern.back() != '*')
      pattern += c;
  }
  return pattern;
}

/// Layers that a line stands for.
struct Alike {
  RegisteredLayer first;
  std::string pattern;
  int layers = 0;

  bool holds(const RegisteredLayer& other) const {
    return pattern == without_numbers(other.name) && first.kind == other.kind &&
           first.a == other.a && first.g == other.g && first.groups == other.groups &&
           first.reason == other.reason;
  }
};

// The lines in the order of their first layers.
std::vector<Alike> by_line(const std::vector<RegisteredLayer>& layers) {
  std::vector<Alike> lines;
  for (const RegisteredLayer& layer : layers) {
    const auto same = std::find_if(lines.begin(), lines.end(),
                                   [&](const Alike& line) { return line.holds(layer); });
    Alike& line = same != lines.end()
                      ? *same
                      : lines.emplace_back(Alike{layer, without_numbers(layer.name), 0});
    ++line.layers;
  }
  return lines;
}

bool is_norm(const RegisteredLayer& layer) { return layer.a == 0; }

// A norm layer has no pair of factors, but a matrix of 2 x 2 for each unit: scale and shift.
std::string factor_a(const RegisteredLayer& layer) {
  if (is_norm(layer)) return "";
  return layer.kind == "embedding" ? fmt::format("diagonal of {}", layer.a)
                                   : fmt::format("{0} x {0}", layer.a);
}
std::string factor_g(const RegisteredLayer& layer) {
  return is_norm(layer) ? fmt::format("2 x 2, {} times", layer.g)
                        : fmt::format("{0} x {0}", layer.g);
}

/// Counts its weight and bias.
std::int64_t parameters_of(const RegisteredLayer& layer) {
  return is_norm(layer) ? 2 * layer.g : layer.groups * layer.a * layer.g;
}

std::vector<std::string> row_of(const Alike& line) {
  const RegisteredLayer& layer = line.first;
  const std::string name = line.layers > 1 ? line.pattern : layer.name;
  if (!layer.reason.empty())
    return {name, fmt::format("{}", line.layers), layer.kind, "", "", "left: " + layer.reason};
  const std::string pairs = layer.groups > 1 ? fmt::format("{} pairs", layer.groups) : "";
  return {name, fmt::format("{}", line.layers), layer.kind, factor_a(layer), factor_g(layer),
          pairs};
}

}  // namespace

// The network and the preconditioner are made as for training, and asked. So this report cannot
// differ from what a run does.
RegistrationReport registration_report(const TrainOptions& options) {
  const doc::Strategy strategy = doc::parse_strategy(options.strategy);
  const plan::Planner planner(strategy, {});  // throws if no Plan could be made by it
  const auto kfac = plan::kfac_of(strategy);
  if (!kfac)
    throw UsageError(fmt::format(
        "--registration: expected a strategy with kfac, as \"ddp+kfac(spd)\", found \"{}\"",
        options.strategy));
  const Network network(describe(options));
  const auto preconditioner = make_preconditioner(
      *kfac, network, [] { return 1.0; }, options.seed);
  return {options.model, network.description().parameter_elements(),
          preconditioner->registration_report()};
}

std::string text_of(const RegistrationReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const Alike& line : by_line(report.layers)) rows.push_back(row_of(line));
  std::int64_t layers = 0, parameters = 0;
  for (const RegisteredLayer& layer : report.layers) {
    if (!layer.reason.empty()) continue;
    ++layers;
    parameters += parameters_of(layer);
  }
  return text_table({{"layer"}, {"layers", true}, {"kind"}, {"A", true}, {"G", true}, {""}}, rows) +
         fmt::format("{}: {} of {} layers, {} of {} parameters are preconditioned\n", report.model,
                     layers, report.layers.size(), parameters, report.parameters);
}

}  // namespace linerate::zoo
