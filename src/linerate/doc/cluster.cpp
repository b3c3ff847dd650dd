// The JSON of a Cluster, field by field (fields.hpp), and the rules that its values keep. Fields
// that most Clusters lack are written only if they differ from their default. So old files read as
// before, and short ones stay short.
#include "linerate/doc/cluster.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/fields.hpp"

namespace linerate::doc {
namespace {

constexpr DocumentKind kClusterDocument{"cluster"};
constexpr Range kBytes{0, INT64_MAX};

double rate_of(std::string_view text) { return parse_rate(text).value; }
double time_of(std::string_view text) { return parse_time(text).value; }

// A segment's time is a line, so it is at least 0 in between if it is at both ends.
void check_segment(const JsonReader& r, const CostSegment& s) {
  if (s.to_bytes < s.from_bytes)
    r.at("to_bytes").refuse(fmt::format("at least from_bytes, {}", s.from_bytes));
  for (const std::int64_t bytes : {s.from_bytes, s.to_bytes})
    if (!(s.alpha_s + s.beta_s_per_byte * static_cast<double>(bytes) >= 0))
      r.fail(fmt::format("expected a time of at least 0 at {} bytes", bytes));
  if (!(s.low >= 0 && s.low <= 1 && s.high >= 1))
    r.fail(fmt::format("expected 0 <= low <= 1 <= high, found {:g} and {:g}", s.low, s.high));
}

void check_segments(const JsonReader& r, const CollectiveCost& c) {
  for (std::size_t i = 1; i < c.segments.size(); ++i)
    if (c.segments[i].from_bytes < c.segments[i - 1].to_bytes)
      r.at("segments", i, "from_bytes").refuse("ascending segments that do not overlap");
  if (c.segments.empty()) r.at("segments").refuse("at least one segment");
}

void check_ascending(const JsonReader& r, std::string_view list, const auto& samples) {
  for (std::size_t i = 1; i < samples.size(); ++i)
    if (samples[i].dim <= samples[i - 1].dim) r.at(list, i, "dim").refuse("ascending dims");
}

void check_second_order(const JsonReader& r, const SecondOrderCost& c) {
  check_ascending(r, "inverses", c.inverses);
  check_ascending(r, "batches", c.batches);
}

void check_network(const JsonReader& r, const Cluster& c) {
  if (!r.has("network") && c.collectives.empty())
    r.fail(
        "expected \"network\" (bandwidth, latency) or measured \"collectives\"; found neither, so "
        "nothing can be predicted");
}

/// Reads a text with its unit, such as "10 Gbit/s", as people write it. Returns whether it was
/// there. Only the plain number is ever written.
bool has_unit(auto& v, std::string_view key, auto& x, double (*parse)(std::string_view)) {
  v.written_if(false, key, x, parse);
  return v.has(key);
}

}  // namespace

void fields(auto& v, Is<Link> auto& link) {
  if (!has_unit(v, "bandwidth", link.bandwidth_bytes_per_s, rate_of))
    v.required("bandwidth_bytes_per_s", link.bandwidth_bytes_per_s, at_least_zero);
  if (!has_unit(v, "latency", link.latency_s, time_of))
    v.optional("latency_s", link.latency_s, at_least_zero);
  if (!has_unit(v, "line_rate", link.line_rate_bytes_per_s, rate_of))
    v.written_if(link.line_rate_bytes_per_s != 0, "line_rate_bytes_per_s",
                 link.line_rate_bytes_per_s, at_least_zero);
  v.written_if(link.line_rate_assumed, "line_rate_assumed", link.line_rate_assumed);
}

// alpha may be negative: the secant between two samples of a curve that bends upwards.
void fields(auto& v, Is<CostSegment> auto& s) {
  v.required("from_bytes", s.from_bytes, kBytes);
  v.required("to_bytes", s.to_bytes, kBytes);
  v.required("alpha_s", s.alpha_s);
  v.required("beta_s_per_byte", s.beta_s_per_byte);
  v.optional("low", s.low);
  v.optional("high", s.high);
  v.hold(check_segment, s);
}

void fields(auto& v, Is<RegimeSwitch> auto& s) {
  v.required("after_bytes", s.after_bytes, kBytes);
  v.required("before_bytes", s.before_bytes, kBytes);
}

void fields(auto& v, Is<CostSample> auto& s) {
  v.required("bytes", s.bytes, positive);
  v.required("seconds", s.seconds, seconds);
  v.optional("low_s", s.low_s, seconds);
  v.optional("high_s", s.high_s, seconds);
}

void fields(auto& v, Is<CollectiveCost> auto& c) {
  v.required("collective", c.collective, parse_collective);
  v.required("ranks", c.ranks, Range{1, kMostRanks});
  v.optional("dtype", c.dtype, parse_dtype);
  v.optional("in_place", c.in_place);
  v.optional("source", c.source);
  v.optional("error_mean", c.error_mean, at_least_zero);
  v.optional("error_max", c.error_max, at_least_zero);
  v.required("segments", c.segments);
  v.hold(check_segments, c);
  v.optional("switches", c.switches);
  v.optional("samples", c.samples);
  v.written_if(c.ranks_per_node != 0, "ranks_per_node", c.ranks_per_node, Range{0, kMostRanks});
}

void fields(auto& v, Is<CodecCost> auto& c) {
  v.required("name", c.name);
  v.optional("encode_fixed_s", c.encode_fixed_s, seconds);
  v.required("encode_bytes_per_s", c.encode_bytes_per_s, positive);
  v.optional("decode_fixed_s", c.decode_fixed_s, seconds);
  v.written_if(c.decode_bytes_per_s != 0, "decode_bytes_per_s", c.decode_bytes_per_s, positive);
  v.written_if(c.on != CodingPlace::codec, "on", c.on, kCodingPlaceNames);
  v.written_if(!c.is_own(), "source", c.source);
  v.written_if(c.published, "published", c.published);
  v.written_if(!c.device.empty(), "device", c.device);
  v.written_if(c.encode_tensor_s != 0, "encode_tensor_s", c.encode_tensor_s, seconds);
  v.written_if(c.decode_tensor_s != 0, "decode_tensor_s", c.decode_tensor_s, seconds);
  v.written_if(c.flops_per_s != 0, "flops_per_s", c.flops_per_s, positive);
  v.written_if(c.spread != 1, "spread", c.spread, one_or_more);
}

void fields(auto& v, Is<InverseSample> auto& s) {
  v.required("dim", s.dim, Range{1, INT64_MAX});
  v.required("seconds", s.seconds, seconds);
}

void fields(auto& v, Is<BatchSample> auto& s) {
  v.required("dim", s.dim, Range{1, INT64_MAX});
  v.required("count", s.count, Range{1, INT32_MAX});
  v.required("one_by_one_s", s.one_by_one_s, seconds);
  v.required("together_s", s.together_s, seconds);
}

void fields(auto& v, Is<SecondOrderCost> auto& c) {
  v.optional("inverse_fixed_s", c.inverse_fixed_s, seconds);
  v.optional("inverse_s_per_cube", c.inverse_s_per_cube, at_least_zero);
  v.optional("inverses", c.inverses);
  v.optional("factor_fixed_s", c.factor_fixed_s, seconds);
  v.optional("factor_flops_per_s", c.factor_flops_per_s, at_least_zero);
  v.optional("factor_s_per_input", c.factor_s_per_input, at_least_zero);
  v.optional("factor_s_per_element", c.factor_s_per_element, at_least_zero);
  v.optional("precondition_fixed_s", c.precondition_fixed_s, seconds);
  v.optional("precondition_flops_per_s", c.precondition_flops_per_s, at_least_zero);
  v.written_if(!c.batches.empty(), "batches", c.batches);
  v.written_if(!c.device.empty(), "device", c.device);
  v.hold(check_second_order, c);
}

// Noise may make factors below 1: a quiet machine that measures faster under load.
void fields(auto& v, Is<Contention> auto& c) {
  v.required("compute_slowdown", c.compute_slowdown, positive);
  v.required("communication_slowdown", c.communication_slowdown, positive);
  v.optional("coding_slowdown", c.coding_slowdown, positive);
  v.written_if(c.message_s != 0, "message_s", c.message_s, seconds);
  v.written_if(c.message_delay_s != 0, "message_delay_s", c.message_delay_s, seconds);
}

void fields(auto& v, Is<RankSpeed> auto& s) {
  v.required("rank", s.rank, Range{0, kMostRanks});
  v.optional("compute_factor", s.compute_factor, positive);
  v.optional("delay_s", s.delay_s, seconds);
}

void fields(auto& v, Is<NominalLevel> auto& l) {
  v.required("efficiency", l.efficiency, positive);
  v.written_if(l.most_bytes_per_s != 0, "most_bytes_per_s", l.most_bytes_per_s, at_least_zero);
  v.optional("start_s", l.start_s, seconds);
  v.optional("start_spread", l.start_spread, one_or_more);
  v.optional("transfer_spread", l.transfer_spread, one_or_more);
  v.optional("measurements", l.measurements, Range{0, INT32_MAX});
  v.written_if(l.adds, "adds", l.adds);
}

void fields(auto& v, Is<NominalNetwork> auto& n) {
  v.optional("name", n.name);
  v.optional("law", n.law, kNetworkLawNames);
  v.optional("inside", n.inside);
  v.optional("between", n.between);
  v.optional("slowdown_high", n.slowdown_high, one_or_more);
  v.optional("step_spread", n.step_spread, at_least_zero);
}

void fields(auto& v, Is<Cluster> auto& c) {
  v.optional("name", c.name);
  v.optional("source", c.source);
  v.optional("ranks", c.ranks, Range{0, kMostRanks});
  v.optional("ranks_per_node", c.ranks_per_node, Range{1, kMostRanks});
  v.optional("network", c.network);
  v.optional("node", c.node);
  v.optional("collectives", c.collectives);
  v.on_read(check_network, c);
  v.optional("codecs", c.codecs);
  v.written_if(c.second_order.has_value(), "second_order", c.second_order);
  v.optional("contention", c.contention);
  v.optional("rank_speeds", c.rank_speeds);
  v.optional("reduce_s_per_byte", c.reduce_s_per_byte, at_least_zero);
  v.written_if(c.tensor_s != 0, "tensor_s", c.tensor_s, seconds);
  v.optional("memory_bytes", c.memory_bytes, positive);
  v.optional("progress_sleep_s", c.progress_sleep_s, seconds);
  v.optional("noise_floor", c.noise_floor, at_least_zero);
  v.written_if(c.half_sum_s_per_byte != 0, "half_sum_s_per_byte", c.half_sum_s_per_byte,
               at_least_zero);
  v.written_if(c.cores.has_value(), "cores", c.cores, Range{1, kMostRanks});
  v.written_if(c.start_delay_s != 0, "start_delay_s", c.start_delay_s, seconds);
  v.written_if(c.nominal.has_value(), "nominal", c.nominal);
}

std::string to_json(const Cluster& c) { return written_document(kClusterDocument, c); }
Cluster cluster_from_json(const std::string& text, const std::string& place) {
  return read_document<Cluster>(kClusterDocument, text, place);
}
Cluster load_cluster(const std::filesystem::path& path) {
  return cluster_from_json(read_file(path), path.string());
}
void validate(const Cluster& c, const std::string& place) {
  const std::string own =
      c.name.empty() ? "the Cluster" : fmt::format("the Cluster \"{}\"", c.name);
  validate_document(kClusterDocument, c, place.empty() ? own : place);
}
void save(const Cluster& c, const std::filesystem::path& path) {
  save_document(kClusterDocument, c, path);
}

}  // namespace linerate::doc
