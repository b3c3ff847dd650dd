#include "linerate/compress/registry.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "linerate/compress/coding_step.hpp"
#include "linerate/compress/method/built_in.hpp"
#include "linerate/doc/strategy.hpp"

// The compressors, a line each, as `linerate list compressors` prints them: the names of their
// files in method/.
#define LINERATE_COMPRESSORS(COMPRESSOR) \
  COMPRESSOR(fp16)                       \
  COMPRESSOR(bf16)                       \
  COMPRESSOR(signsgd)                    \
  COMPRESSOR(efsignsgd)                  \
  COMPRESSOR(onebit)                     \
  COMPRESSOR(onebit_adam)                \
  COMPRESSOR(qsgd)                       \
  COMPRESSOR(maxmin)                     \
  COMPRESSOR(terngrad)                   \
  COMPRESSOR(natural)                    \
  COMPRESSOR(topk)                       \
  COMPRESSOR(randomk)                    \
  COMPRESSOR(threshold)                  \
  COMPRESSOR(sidco)                      \
  COMPRESSOR(dgc)                        \
  COMPRESSOR(mstopk)                     \
  COMPRESSOR(powersgd)                   \
  COMPRESSOR(acpsgd)

namespace linerate::compress {

#define LINERATE_LINE(file) CompressorLine compressor_##file();
LINERATE_COMPRESSORS(LINERATE_LINE)
#undef LINERATE_LINE

namespace {

#define LINERATE_LINE(file) compressor_##file(),
std::vector<CompressorLine> all_lines() { return {LINERATE_COMPRESSORS(LINERATE_LINE)}; }
#undef LINERATE_LINE

/// Words that mean something else in a strategy's text (plan/registry.cpp).
constexpr std::array<std::string_view, 3> kTakenNames = {"auto", "codec", "kfac"};
/// Options of a Plan's operation that are not the compressor's (coding_step.cpp).
constexpr std::array<std::string_view, 3> kOptionsOfPlans = {"round", "phase", "exchange"};

bool is_one_of(std::span<const std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Whether a strategy's text with this name means this name.
bool is_name(const std::string& name) {
  try {
    return doc::parse_component(name) == doc::Component{name, {}};
  } catch (const UsageError&) {
    return false;
  }
}

Registry<MakeCompressor>& registry() {
  static Registry<MakeCompressor> table("compressor", all_lines());
  return table;
}

/// Checks, for a program's own compressor too, what every caller relies on. There is a compressor,
/// its options have names of their own, and its phases have steps.
void check(const Compressor* compressor, const doc::Component& component,
           const std::vector<std::string>& options) {
  const auto refuse = [&](const std::string& expected) {
    throw UsageError("compressor " + doc::to_text(component) + ": expected " + expected);
  };
  if (!compressor) refuse("a compressor, as it is registered, found none");
  for (const std::string& option : options)
    if (is_one_of(kOptionsOfPlans, option))
      refuse("options by other names than round, phase and exchange, which Plans have, found " +
             option);
  const Phases phases = compressor->phases();
  if (phases.cycle.empty()) refuse("phases() whose cycle has a step, found none");
  for (const Phase& phase : phases.warm_up)
    if (phase.steps < 1)
      refuse("phases() of 1 step or more, found " + std::to_string(phase.steps) + " in phase \"" +
             phase.name + "\"");
}

/// rounds() of a small tensor is empty. Chunks of the two-phase exchange are coded by the inner
/// compressor, however small they are: the option is about tensors.
class DenseBelow : public Compressor {
 public:
  DenseBelow(std::unique_ptr<const Compressor> inner, std::int64_t elements)
      : inner_(std::move(inner)), elements_(elements) {}

  Phases phases() const override { return inner_->phases(); }
  std::vector<Round> rounds(const Shape& shape) const override {
    return is_dense(shape) ? std::vector<Round>() : inner_->rounds(shape);
  }
  std::vector<Round> rounds(const Shape& shape, int phase) const override {
    return is_dense(shape) ? std::vector<Round>() : inner_->rounds(shape, phase);
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override { return inner_->codec(shape); }
  Residual residual() const override { return inner_->residual(); }
  Momentum momentum() const override { return inner_->momentum(); }
  std::unique_ptr<Codec> of_dense(const Shape& shape) const override {
    return inner_->of_dense(shape);
  }
  bool is_two_phase() const override { return inner_->is_two_phase(); }
  std::unique_ptr<const Compressor> of_means() const override { return inner_->of_means(); }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return inner_->remembered_bytes(shape);
  }
  double products(const Shape& shape) const override {
    return is_dense(shape) ? 0 : inner_->products(shape);
  }
  bool is_unbiased() const override { return inner_->is_unbiased(); }
  std::int64_t dense_below() const override { return inner_->dense_below(); }
  const Compressor& of_chunks() const override { return *inner_; }

 private:
  bool is_dense(const Shape& shape) const { return shape.elements < elements_; }

  std::unique_ptr<const Compressor> inner_;
  std::int64_t elements_;
};

}  // namespace

const Registry<MakeCompressor>& compressors() { return registry(); }

std::vector<std::string> built_in_compressors() {
  return Registry<MakeCompressor>("compressor", all_lines()).names();
}

void register_compressor(CompressorLine line) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError("register_compressor: \"" + line.name + "\": " + why);
  };
  if (!is_name(line.name))
    refuse("expected a name of letters, digits, \"-\" and \"_\", as in a strategy's text");
  if (line.make == nullptr) refuse("expected a function that makes it, found none");
  const std::vector<std::string> known = registry().names();
  if (std::find(known.begin(), known.end(), line.name) != known.end())
    refuse("a compressor of this name is registered already");
  if (is_one_of(kTakenNames, line.name))
    refuse("in a strategy's text this is no compressor; choose another name");
  std::vector<CompressorLine> lines = registry().lines();
  lines.push_back(std::move(line));
  registry() = Registry<MakeCompressor>("compressor", std::move(lines));
}

/// Asked of a large matrix, for which every method has rounds.
bool is_summable(const Compressor& compressor) {
  const std::vector<Round> rounds = compressor.of_chunks().rounds({std::int64_t{1} << 20, 1024});
  return std::all_of(rounds.begin(), rounds.end(),
                     [](const Round& round) { return round.combine == Combine::sum; });
}

std::unique_ptr<const Compressor> with_dense_below(std::unique_ptr<const Compressor> compressor,
                                                   doc::OptionReader& options) {
  const std::int64_t elements = options.integer(kDenseBelow, 0);
  if (elements < 0) options.refuse(kDenseBelow, "0 or a number of elements");
  if (!compressor || elements == 0) return compressor;
  return std::make_unique<DenseBelow>(std::move(compressor), elements);
}

doc::Component without_dense_below(doc::Component component) {
  std::erase_if(component.options, [](const auto& option) { return option.first == kDenseBelow; });
  return component;
}

std::vector<std::string> options_of(std::string_view compressor) {
  const doc::Component plain{std::string(compressor), {}};
  doc::OptionReader options(plain);
  with_dense_below(compressors().at(compressor)(options), options);
  return options.known();
}

std::unique_ptr<const Compressor> make_compressor(const doc::Component& component) {
  doc::OptionReader options(component);
  auto compressor = with_dense_below(compressors().at(component.name)(options), options);
  options.finish();
  check(compressor.get(), component, options.known());
  return compressor;
}

std::unique_ptr<const Compressor> make_built_in(const doc::Component& component,
                                                const MakeCodec& make) {
  const auto whole = make_compressor(component);
  const auto* const inner = dynamic_cast<const BuiltIn*>(&whole->of_chunks());
  if (inner == nullptr) return nullptr;
  doc::OptionReader options(component);
  return with_dense_below(std::make_unique<BuiltIn>(inner->method(), make), options);
}

doc::Component as_planned(doc::Component component) {
  const std::string* const said = component.find(kDenseBelow);
  if (said != nullptr) return *said == "0" ? without_dense_below(component) : component;
  if (const std::int64_t elements = make_compressor(component)->dense_below(); elements > 0)
    component.options.emplace_back(kDenseBelow, std::to_string(elements));
  return component;
}

}  // namespace linerate::compress
