#include "linerate/zoo/preconditioner.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <tuple>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/kfac/kfac_options.hpp"
#include "linerate/kfac/preconditioner.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/kfac/curvature.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/zoo/network.hpp"

namespace linerate::zoo {

using torch_adapter::KFAC;
using torch_adapter::LossAverage;

std::unique_ptr<KFAC> make_preconditioner(const plan::Kfac& kfac, const Network& network,
                                          std::function<double()> rate, std::uint64_t seed,
                                          torch::optim::Optimizer* optimizer) {
  if (kfac.accumulate.value_or(1) != 1)
    throw UsageError(
        fmt::format("kfac(accumulate={}): a step here is one backward pass; leave it out, or train "
                    "with torch_adapter::KFAC or linerate.torch",
                    *kfac.accumulate));
  torch_adapter::KfacOptions options = torch_adapter::planned_options(kfac);
  options.loss_average =
      LossAverage{.over = network.description().tokens() ? LossAverage::Over::batch_positions
                                                         : LossAverage::Over::batch};
  options.optimizer = optimizer;
  options.learning_rate = [rate = std::move(rate)](std::int64_t) { return rate(); };
  options.seed = seed;
  std::vector<at::Tensor> parameters;
  for (const auto& [name, tensor] : network.parameters()) parameters.push_back(tensor);
  return std::make_unique<KFAC>(network.layers(), parameters, options);
}

std::string too_large(const KFAC& preconditioner, const plan::Kfac& kfac) {
  std::vector<plan::TooLarge> layers;
  for (const torch_adapter::RegisteredLayer& layer : preconditioner.registration_report())
    if (layer.too_large > 0) layers.push_back({layer.name, layer.too_large});
  return plan::too_large(layers, kfac.largest);
}

// K-FAC sees the network's output, and with fisher=mc draws labels from it. Rows are numbered over
// all ranks, so that the draws do not depend on how samples are shared.
void show_output(KFAC& preconditioner, const plan::Kfac& kfac, const at::Tensor& output,
                 std::int64_t first_sample) {
  // K-FAC takes dimension 1 for the classes: every position becomes a row of its own.
  const at::Tensor terms = output.flatten(0, -2);
  preconditioner.loss_of(terms);
  if (!kfac.samples_labels) return;
  const std::int64_t positions = output.size(0) > 0 ? terms.size(0) / output.size(0) : 1;
  preconditioner.sample_fisher(terms, torch_adapter::LossKind::softmax_cross_entropy,
                               first_sample * positions);
}

// Says before any training which layers K-FAC takes. A large network has hundreds of layers, so
// those whose names differ only in numbers, and whose factors have the same sizes, share a line.

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

  auto key() const {
    return std::tie(pattern, first.kind, first.a, first.g, first.groups, first.reason);
  }
};

bool is_norm(const RegisteredLayer& layer) { return layer.a == 0; }

// A norm layer has no pair of factors, but a matrix of 2 x 2 for each unit: scale and shift.
std::vector<std::string> row_of(const Alike& line) {
  const RegisteredLayer& layer = line.first;
  std::vector<std::string> row = {line.layers > 1 ? line.pattern : layer.name,
                                  fmt::format("{}", line.layers), layer.kind};
  const auto add = [&](const std::string& a, const std::string& g, const std::string& said) {
    row.insert(row.end(), {a, g, said});
    return row;
  };
  if (!layer.reason.empty()) return add("", "", "left: " + layer.reason);
  const std::string pairs = layer.groups > 1 ? fmt::format("{} pairs", layer.groups) : "";
  if (is_norm(layer)) return add("", fmt::format("2 x 2, {} times", layer.g), pairs);
  const std::string a = layer.kind == "embedding" ? fmt::format("diagonal of {}", layer.a)
                                                  : fmt::format("{0} x {0}", layer.a);
  return add(a, fmt::format("{0} x {0}", layer.g), pairs);
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
  std::vector<Alike> lines;  // in the order of their first layers
  std::int64_t layers = 0, parameters = 0;
  for (const RegisteredLayer& layer : report.layers) {
    const Alike mine{layer, without_numbers(layer.name), 1};
    const auto same =
        std::ranges::find_if(lines, [&](const Alike& line) { return line.key() == mine.key(); });
    if (same != lines.end())
      ++same->layers;
    else
      lines.push_back(mine);
    if (!layer.reason.empty()) continue;
    ++layers;
    parameters += is_norm(layer) ? 2 * layer.g : layer.groups * layer.a * layer.g;
  }
  std::vector<std::vector<std::string>> rows;
  for (const Alike& line : lines) rows.push_back(row_of(line));
  return text_table({"layer", ">layers", "kind", ">A", ">G", ""}, rows) +
         fmt::format("{}: {} of {} layers, {} of {} parameters are preconditioned\n", report.model,
                     layers, report.layers.size(), parameters, report.parameters);
}

}  // namespace linerate::zoo
