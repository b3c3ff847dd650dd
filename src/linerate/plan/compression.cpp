// Decides how a bucket is coded. A strategy names one compressor, or auto with several. For each
// bucket the compressor's layout says which tensors it codes, and in how many rounds their payloads
// travel. Payloads that are summed take an all-reduce. Payloads that are gathered have two ways:
// - gather: every rank receives the payloads of all ranks and decodes n of them.
// - two-phase: each rank owns 1/n of the bucket. It receives its part of all payloads, decodes and
//   adds them, encodes the sum and sends it to all. The cheaper way counts if the strategy does not
//   say one (coded_by). auto also weighs a bucket that travels dense (coding_of).
#include "linerate/plan/compression.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/doc/option_reader.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

using compress::BucketRound;
using compress::Combine;

constexpr const char* kUnit = "unit";
constexpr const char* kExchange = "exchange";

// The tensor as compressors see it; a vector has one row.
compress::Shape shape_of(const doc::Gradient& g) { return {g.elements, g.rows.value_or(1)}; }

/// Whether the compressor sends factors of matrices, and vectors dense. It is asked for two shapes.
bool needs_matrices(const compress::Compressor& compressor) {
  constexpr std::int64_t kElements = 1 << 20, kRows = 1024;
  const compress::Compressor& of_any = compressor.of_chunks();
  return of_any.rounds({kElements, 1}).empty() && !of_any.rounds({kElements, kRows}).empty();
}

std::vector<compress::Shape> shapes_of(const doc::Workload& workload, const doc::TaskGraph& graph,
                                       const doc::Payload& bucket) {
  std::vector<compress::Shape> shapes;
  for (const std::int32_t p : members_of(graph, bucket))
    shapes.push_back(shape_of(workload.gradients[to_index(p)]));
  return shapes;
}

bool gathers(const compress::BucketLayout& layout) {
  return layout.is_coded() && layout.rounds.front().combine == Combine::gather;
}

/// Whether the bucket travels in one sum alone. Then a reduce-scatter and an all-gather can replace
/// it.
bool is_one_sum(const compress::BucketLayout& layout) {
  return layout.rounds.size() == 1 && !gathers(layout) && !layout.has_dense_payload();
}

std::int64_t dense_bytes(const compress::BucketLayout& layout) {
  std::int64_t elements = 0;
  for (const compress::BucketPart& part : layout.parts) elements += part.shape.elements;
  return elements * size_of(DType::f32);
}

std::string name_of(const doc::Cluster& cluster) {
  return cluster.name.empty() ? "the Cluster" : fmt::format("the Cluster \"{}\"", cluster.name);
}

// The component without one of its options.
doc::Component without(doc::Component component, std::string_view option) {
  std::erase_if(component.options, [&](const auto& o) { return o.first == option; });
  return component;
}

}  // namespace

std::string left_dense(std::string_view name, const doc::Workload& workload) {
  std::set<std::string_view> types;
  std::int64_t count = 0, bytes = 0;
  for (const doc::Gradient& g : workload.gradients) {
    if (g.dtype == DType::f32) continue;
    types.insert(linerate::name_of(g.dtype));
    ++count;
    bytes += g.bytes();
  }
  if (count == 0) return {};
  return fmt::format(
      "{}: {} of {} gradients {} {}, and only f32 is compressed: {} a step travel dense; keep "
      "these parameters in f32 to compress them",
      name, count, workload.gradients.size(), count == 1 ? "is" : "are", fmt::join(types, " and "),
      format_size(static_cast<double>(bytes)));
}

std::string left_dense(const doc::Strategy& strategy, const doc::Workload& workload) {
  for (const doc::Component& extra : strategy.extras)
    if (is(extra, Extra::compressor) || is(extra, Extra::automatic))
      return left_dense(extra.name, workload);
  return {};
}

AskedOfOptimizer asked_of_optimizer(const doc::Strategy& strategy) {
  for (const doc::Component& extra : strategy.extras) {
    if (!is(extra, Extra::compressor) && !is(extra, Extra::automatic)) continue;
    for (const doc::Component& one : compressors_in(extra))
      if (const auto momentum = compress::make_compressor(one)->momentum();
          momentum != compress::Momentum::optimizers)
        return {one.name, momentum};
  }
  return {};
}

OptimizerFit fit_of(const AskedOfOptimizer& asked, compress::StepsBy optimizer) {
  using compress::StepsBy;
  if (asked.compressor.empty() || optimizer == StepsBy::gradients) return {};
  const bool sends_moment = asked.momentum == compress::Momentum::adams;
  if (sends_moment && optimizer == StepsBy::adams)
    return {
        fmt::format(
            "{} sends Adam's first moment and needs an optimizer that steps by it with a frozen "
            "second moment. Adam would average it once more, and would estimate the second moment "
            "from its signs; take a compressor that sends gradients, such as efsignsgd or qsgd",
            asked.compressor),
        ""};
  const std::vector<std::string> options = compress::options_of(asked.compressor);
  const bool may_leave_it = std::find(options.begin(), options.end(), "momentum") != options.end();
  const std::string instead =
      may_leave_it ? fmt::format(", or write {}(momentum=0)", asked.compressor) : "";
  if (optimizer == StepsBy::sum)
    return {fmt::format("{} brings its own momentum, and the optimizer would add momentum once "
                        "more; give the optimizer momentum=0{}",
                        asked.compressor, instead),
            ""};
  return {"", fmt::format("{} brings its own momentum, and the optimizer's first moment would "
                          "average it once more; take SGD with momentum=0{}",
                          asked.compressor, instead)};
}

Method Method::parse(const doc::Component& component, const doc::Cluster& cluster) {
  const doc::Component planned = compress::as_planned(component);
  Method method{planned, compress::make_compressor(planned), {}};
  if (const auto price = price_of(component, cluster.codecs))
    method.cost = price->cost, method.about_cost = about(*price, doc::to_text(component));
  return method;
}

CompressionModel CompressionModel::parse(const doc::Component& component,
                                         const doc::Cluster& cluster) {
  CompressionModel compression;
  compression.name_ = component.name;
  if (is(component, Extra::automatic)) {
    compression.read_auto(component, cluster);
  } else {
    // An unknown option is refused here, where all are known: the compressor's, and the exchange
    // of what is gathered.
    doc::OptionReader of_compressor(component), options(component);
    const auto read = compress::with_dense_below(
        compress::compressors().at(component.name)(of_compressor), of_compressor);
    for (const std::string& option : of_compressor.known())
      static_cast<void>(options.text(option, ""));
    if (!compress::is_summable(*read))
      compression.way_ =
          static_cast<Way>(options.choice(kExchange, {"auto", "gather", "two-phase"}));
    else if (component.find(kExchange) != nullptr)
      options.fail(kExchange, "its payloads are summed; leave it out");
    options.finish();
    compression.methods_.push_back(Method::parse(without(component, kExchange), cluster));
    const compress::Compressor& compressor = *compression.methods_.front().compressor;
    if (compression.way_ == Way::two_phase && !compress::fits_two_phase(compressor))
      options.fail(kExchange, "its payloads are gathered alone; leave it out");
    if (component.find(kExchange) == nullptr && compressor.is_two_phase())
      compression.way_ = Way::two_phase;
  }
  if (compression.methods_.size() == 1)
    compression.phases_ = compression.methods_.front().compressor->phases();
  return compression;
}

// Reads auto(...). It needs a calibrated cost for each compressor; otherwise it could not weigh
// them against the dense exchange. Without names it takes all that the Cluster has calibrated.
void CompressionModel::read_auto(const doc::Component& component, const doc::Cluster& cluster) {
  dense_where_cheaper_ = true;
  std::vector<doc::Component> named = compressors_in(component);
  const bool takes_all = named.empty();
  if (takes_all)
    for (const doc::CodecCost& cost : cluster.codecs) {
      if (!cost.is_own()) continue;  // buckets are decided on by what is known of this network
      const doc::Component calibrated = doc::parse_component(cost.name);
      if (is(calibrated, Extra::compressor)) named.push_back(calibrated);
    }
  for (const doc::Component& one : named) {
    Method method = Method::parse(one, cluster);
    // Steps of one Plan are in one phase, and need one kind of optimizer.
    const bool is_special = method.compressor->phases().count() > 1 ||
                            method.compressor->momentum() != compress::Momentum::optimizers;
    if (takes_all && is_special) continue;
    if (method.compressor->momentum() == compress::Momentum::own)
      throw UsageError(
          fmt::format("strategy auto: {0} brings its own momentum, which buckets that stay dense "
                      "would lack; compress all of them with +{0}",
                      one.name));
    if (is_special && named.size() > 1)
      throw UsageError(
          fmt::format("strategy auto: {} has steps or an optimizer of its own, so it must be the "
                      "only compressor; found {} compressors",
                      doc::to_text(one), named.size()));
    if (!method.cost || !method.cost->is_own())
      throw UsageError(
          fmt::format("strategy auto: the cost of {1} is not in {0}; run linerate calibrate "
                      "--codecs \"{2}\" and give its Cluster",
                      name_of(cluster), doc::to_text(one), doc::to_text(one)));
    methods_.push_back(std::move(method));
  }
  if (methods_.empty())
    throw UsageError(
        fmt::format("strategy auto: {} has no calibrated compressor to choose among; run linerate "
                    "calibrate --codecs and give its Cluster",
                    name_of(cluster)));
}

doc::CodedTensors BucketCoding::coded() const {
  doc::CodedTensors all{0, 0, 0};
  for (const compress::BucketPart& part : layout.parts) {
    if (!part.is_coded()) continue;
    all.bytes += part.shape.elements * size_of(DType::f32);
    ++all.tensors;
    all.flops += method->compressor->products(part.shape);
  }
  return all;
}

doc::CodedTensors BucketCoding::part_of(int ranks) const {
  doc::CodedTensors part = coded();
  part.bytes /= ranks, part.flops /= ranks;
  return part;
}

doc::CodedTensors CompressionModel::coded(const doc::Workload& workload) const {
  std::vector<compress::Shape> shapes;
  for (const doc::Gradient& g : workload.gradients)
    if (g.dtype == DType::f32) shapes.push_back(shape_of(g));
  const Method& method = methods_.front();
  return BucketCoding{
      &method, compress::layout_of(*method.compressor, shapes, -1, name_), {}, false}
      .coded();
}

// With auto, the dense all-reduce is the first candidate. Each compressor replaces it if it takes
// less time from encoding to decoding. An example: a bucket of 25 MiB takes 20 ms dense. powersgd
// takes 4 ms to encode, 2 ms to send and 2 ms to decode, so it is chosen. A bucket of 64 KiB takes
// .3 ms dense and stays dense, because the codec's launches alone take longer.
BucketCoding CompressionModel::coding_of(const PassInput& input, const doc::TaskGraph& graph,
                                         const doc::Payload& bucket) const {
  if (bucket.dtype != DType::f32) return {};
  const std::vector<compress::Shape> shapes = shapes_of(input.workload, graph, bucket);
  if (!dense_where_cheaper_) return coded_by(methods_.front(), input, shapes);
  BucketCoding best;
  double least = cost::cost_curve(input.cost, Collective::all_reduce, input.ranks)
                     .seconds(static_cast<double>(bucket.elements * size_of(DType::f32)));
  for (const Method& method : methods_) {
    BucketCoding coding = coded_by(method, input, shapes);
    if (!coding.is_coded()) continue;
    if (input.schedule == Schedule::decoupled && !is_one_sum(coding.layout)) continue;
    const double seconds = seconds_of(coding, input);
    if (seconds < least) least = seconds, best = std::move(coding);
  }
  return best;
}

// Codes the bucket by one compressor, if that codes any tensor in it. The two-phase exchange is
// priced against the gather. Decoupled exchanges never take two phases, since they split one sum.
BucketCoding CompressionModel::coded_by(const Method& method, const PassInput& input,
                                        std::span<const compress::Shape> shapes) const {
  BucketCoding coding{
      &method,
      compress::layout_of(*method.compressor, shapes, input.phase, doc::to_text(method.component)),
      {},
      false};
  if (!coding.is_coded()) return {};
  if (!dense_where_cheaper_ && input.schedule == Schedule::decoupled && !is_one_sum(coding.layout))
    throw UsageError(
        "strategy dear: it splits one all-reduce, so a compressor's payloads must be summed in one "
        "round; take fp16, bf16, randomk or acpsgd, or another exchange");
  if (way_ == Way::two_phase && !gathers(coding.layout)) {
    coding.two_phase = true;  // what its codecs remember of this phase is theirs in the next
    return coding;
  }
  if (!gathers(coding.layout) || way_ == Way::gather || input.schedule == Schedule::decoupled ||
      !compress::fits_two_phase(*method.compressor))
    return coding;
  BucketCoding other = coding;
  other.two_phase = true;
  other.chunks = compress::two_phase_layout_of(*method.compressor, coding.layout, input.ranks);
  if (way_ == Way::two_phase) return other;
  if (!input.cost.can_price(Collective::all_gather, input.ranks) ||
      !input.cost.can_price(Collective::all_to_all, input.ranks))
    return coding;
  return seconds_of(other, input) < seconds_of(coding, input) ? other : coding;
}

/// Seconds from the begin of encoding to the end of decoding, one part after the other.
///
/// With owners: encode, all-to-all of the parts, decode n parts, encode the owner's part of the
/// sum, all-gather, decode all parts. n parts have as many elements as one bucket. Otherwise:
/// encode, then every round, then decode. A gathered payload is decoded once for each rank. A
/// payload whose size is bound but not known travels padded, or after an exchange of sizes of 8
/// bytes a rank. The tensors that stay dense take one more all-reduce.
double CompressionModel::seconds_of(const BucketCoding& coding, const PassInput& input) const {
  const auto price = [&](Collective collective, DType dtype, std::int64_t bytes) {
    return cost::cost_curve(input.cost, collective, input.ranks, dtype)
        .seconds(static_cast<double>(bytes));
  };
  const doc::CodedTensors coded = coding.coded();
  const Method& method = *coding.method;
  double seconds = method.encode_s(coded);
  if (coding.has_owners()) {
    const std::int64_t array = coding.chunks.block_bytes * input.ranks;
    seconds += price(Collective::all_to_all, DType::u8, array) + method.decode_s(coded) +
               method.encode_s(coding.part_of(input.ranks)) +
               price(Collective::all_gather, DType::u8, array) + method.decode_s(coded);
  } else {
    for (const BucketRound& round : coding.layout.rounds) {
      const bool pads = round.is_bound && !round.tells_sizes;
      const std::int64_t own = (pads ? round.elements : round.expected) * size_of(round.dtype);
      seconds += round.combine == Combine::sum
                     ? price(Collective::all_reduce, round.dtype, own)
                     : price(Collective::all_gather, round.dtype, own * input.ranks);
      if (round.combine == Combine::gather && round.tells_sizes)
        seconds += price(Collective::all_gather, DType::i64, 8 * input.ranks);
    }
    seconds += method.decode_s(coded) * (gathers(coding.layout) ? input.ranks : 1);
  }
  if (coding.layout.has_dense_payload())
    seconds += price(Collective::all_reduce, DType::f32, dense_bytes(coding.layout) - coded.bytes);
  return seconds;
}

void CompressionModel::require_shapes(const doc::Workload& workload) const {
  if (workload.knows_shapes()) return;
  for (const Method& method : methods_)
    if (needs_matrices(*method.compressor))
      throw UsageError(fmt::format(
          "strategy {}: it sends factors of matrices, and {} does not say which of its {} "
          "gradients are matrices (rows). Record the trace with record_shapes=True and import it "
          "again, take a network of the zoo (-w zoo:resnet50), or add \"rows\" to the file",
          doc::to_text(method.component), workload.in_words(), workload.gradients.size()));
}

// Buckets are cut before it is known how each is coded, so they are cut by the mean over all
// gradients.
WireForm CompressionModel::typical_form(const doc::Workload& workload) const {
  require_shapes(workload);
  const compress::Compressor& compressor = *methods_.front().compressor;
  std::int64_t dense = 0, sent = 0;
  bool gathers = false;
  for (const doc::Gradient& g : workload.gradients) {
    dense += g.bytes();
    const auto rounds =
        g.dtype == DType::f32 ? compressor.rounds(shape_of(g)) : std::vector<compress::Round>{};
    if (rounds.empty()) sent += g.bytes();
    for (const compress::Round& round : rounds) {
      sent += round.is_bound && round.expected > 0 ? round.expected : round.bytes;
      gathers = gathers || round.combine == Combine::gather;
    }
  }
  WireForm form;
  if (sent > 0 && sent < dense) form.ratio = static_cast<double>(dense) / static_cast<double>(sent);
  form.gather = gathers;
  return form;
}

bool needs_shapes(const doc::Strategy& strategy, const doc::Cluster& cluster) {
  for (const doc::Component& extra : strategy.extras) {
    if (!is(extra, Extra::compressor) && !is(extra, Extra::automatic)) continue;
    const CompressionModel compression = CompressionModel::parse(extra, cluster);
    for (const Method& method : compression.methods())
      if (needs_matrices(*method.compressor)) return true;
  }
  return false;
}

/// auto(NAME, option=value) is auto(NAME(option=value)). With several names an option would be
/// ambiguous and is refused.
std::vector<doc::Component> compressors_in(const doc::Component& component) {
  if (!is(component, Extra::automatic)) return {without(component, kExchange)};
  std::vector<doc::Component> named;
  std::vector<std::pair<std::string, std::string>> of_the_only_one;
  for (const auto& [key, value] : component.options)
    if (key.empty())
      named.push_back(doc::parse_component(value));
    else
      of_the_only_one.emplace_back(key, value);
  if (!of_the_only_one.empty() && named.size() != 1)
    doc::OptionReader(component).fail(
        of_the_only_one.front().first,
        fmt::format("it belongs to one compressor, found {}: write it after its own, as in "
                    "auto(powersgd(rank=4), topk(density=0.01))",
                    named.size()));
  for (const auto& option : of_the_only_one) named.front().options.push_back(option);
  for (const doc::Component& one : named)
    if (!is(one, Extra::compressor))
      throw UsageError(fmt::format(
          "strategy auto: expected compressors (linerate list compressors), found \"{}\"",
          doc::to_text(one)));
  return named;
}

bool fits_decoupled(const doc::Component& component) {
  const auto compressor = compress::make_compressor(component);
  const compress::Shape matrix{std::int64_t{1} << 20, 1024};
  return compress::is_summable(*compressor) && compressor->rounds(matrix).size() == 1;
}

doc::Component scale_in_gradient_units() { return {"scale", {{kUnit, "gradient"}}}; }
bool is_in_gradient_units(const doc::Component& operation) {
  return operation.find(kUnit) != nullptr;
}

}  // namespace linerate::plan
