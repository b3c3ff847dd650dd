#include "linerate/doc/cluster.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/json.hpp"

namespace linerate::doc {
namespace {

Json json_of_link(const Link& link) {
  Json json = {{"bandwidth_bytes_per_s", link.bandwidth_bytes_per_s},
               {"latency_s", link.latency_s}};
  if (link.line_rate_bytes_per_s > 0) json["line_rate_bytes_per_s"] = link.line_rate_bytes_per_s;
  return json;
}

Json json_of_collective(const CollectiveCost& c) {
  Json json = {{"collective", name_of(c.collective)},
               {"ranks", c.ranks},
               {"dtype", name_of(c.dtype)},
               {"in_place", c.in_place},
               {"source", c.source},
               {"error_mean", c.error_mean},
               {"error_max", c.error_max},
               {"segments", Json::array()},
               {"switches", Json::array()},
               {"samples", Json::array()}};
  if (c.ranks_per_node > 0) json["ranks_per_node"] = c.ranks_per_node;
  for (const CostSegment& s : c.segments)
    json["segments"].push_back({{"from_bytes", s.from_bytes},
                                {"to_bytes", s.to_bytes},
                                {"alpha_s", s.alpha_s},
                                {"beta_s_per_byte", s.beta_s_per_byte},
                                {"low", s.low},
                                {"high", s.high}});
  for (const RegimeSwitch& s : c.switches)
    json["switches"].push_back({{"after_bytes", s.after_bytes}, {"before_bytes", s.before_bytes}});
  for (const CostSample& s : c.samples)
    json["samples"].push_back(
        {{"bytes", s.bytes}, {"seconds", s.seconds}, {"low_s", s.low_s}, {"high_s", s.high_s}});
  return json;
}

Json json_of_second_order(const SecondOrderCost& c) {
  Json json = {{"inverse_fixed_s", c.inverse_fixed_s},
               {"inverse_s_per_cube", c.inverse_s_per_cube},
               {"inverses", Json::array()},
               {"factor_fixed_s", c.factor_fixed_s},
               {"factor_flops_per_s", c.factor_flops_per_s},
               {"factor_s_per_input", c.factor_s_per_input},
               {"factor_s_per_element", c.factor_s_per_element},
               {"precondition_fixed_s", c.precondition_fixed_s},
               {"precondition_flops_per_s", c.precondition_flops_per_s}};
  for (const InverseSample& s : c.inverses)
    json["inverses"].push_back({{"dim", s.dim}, {"seconds", s.seconds}});
  return json;
}

// A number under `key` in base units, or a text with its unit under the key without its unit
// suffix.
template <typename Parse>
double quantity(const JsonReader& r, std::string_view key, std::string_view plain_key,
                Parse parse) {
  if (r.has(key)) return r.at_least_zero(key);
  if (!r.has(plain_key)) (void)r.at(key);  // throws, naming the nearest key
  const JsonReader text = r.at(plain_key);
  try {
    return parse(text.string()).value;
  } catch (const UsageError& e) {
    text.fail(e.what());
  }
}

Link read_link(const JsonReader& r) {
  Link link;
  link.bandwidth_bytes_per_s = quantity(r, "bandwidth_bytes_per_s", "bandwidth", parse_rate);
  if (r.has("latency_s") || r.has("latency"))
    link.latency_s = quantity(r, "latency_s", "latency", parse_time);
  if (r.has("line_rate_bytes_per_s") || r.has("line_rate"))
    link.line_rate_bytes_per_s = quantity(r, "line_rate_bytes_per_s", "line_rate", parse_rate);
  return link;
}

// alpha may be negative: the secant between two samples of a curve that bends upwards.
CostSegment read_segment(const JsonReader& r) {
  CostSegment s{r.integer_in("from_bytes", 0, INT64_MAX),
                r.integer_in("to_bytes", 0, INT64_MAX),
                r.number("alpha_s"),
                r.number("beta_s_per_byte"),
                r.number_or("low", 1),
                r.number_or("high", 1)};
  if (s.to_bytes < s.from_bytes)
    r.at("to_bytes").refuse(fmt::format("at least from_bytes, {}", s.from_bytes));
  for (const std::int64_t bytes : {s.from_bytes, s.to_bytes})
    if (!(s.alpha_s + s.beta_s_per_byte * static_cast<double>(bytes) >= 0))
      r.fail(fmt::format("expected a time of at least 0 at {} bytes", bytes));
  if (!(s.low >= 0 && s.low <= 1 && s.high >= 1))
    r.fail(fmt::format("expected 0 <= low <= 1 <= high, found {:g} and {:g}", s.low, s.high));
  return s;
}

CollectiveCost read_collective(const JsonReader& r) {
  CollectiveCost c;
  c.collective = r.at("collective").parsed(parse_collective);
  c.ranks = static_cast<int>(r.integer_in("ranks", 1, kMostRanks));
  if (r.has("dtype")) c.dtype = r.at("dtype").parsed(parse_dtype);
  c.in_place = r.has("in_place") && r.at("in_place").boolean();
  c.source = r.string_or("source", "");
  if (r.has("ranks_per_node"))
    c.ranks_per_node = static_cast<int>(r.integer_in("ranks_per_node", 0, kMostRanks));
  if (r.has("error_mean")) c.error_mean = r.at_least_zero("error_mean");
  if (r.has("error_max")) c.error_max = r.at_least_zero("error_max");
  for (const JsonReader& s : r.at("segments").items()) {
    c.segments.push_back(read_segment(s));
    if (c.segments.size() > 1 && c.segments.back().from_bytes < c.segments.end()[-2].to_bytes)
      s.at("from_bytes").refuse("ascending segments that do not overlap");
  }
  if (c.segments.empty()) r.at("segments").refuse("at least one segment");
  if (r.has("switches"))
    for (const JsonReader& s : r.at("switches").items())
      c.switches.push_back(
          {s.integer_in("after_bytes", 0, INT64_MAX), s.integer_in("before_bytes", 0, INT64_MAX)});
  if (r.has("samples"))
    for (const JsonReader& s : r.at("samples").items())
      c.samples.push_back({s.positive("bytes"), s.seconds("seconds"), s.seconds_or("low_s", 0),
                           s.seconds_or("high_s", 0)});
  return c;
}

CodecCost read_codec(const JsonReader& r) {
  CodecCost c;
  c.name = r.string("name");
  c.encode_fixed_s = r.seconds_or("encode_fixed_s", 0);
  c.encode_bytes_per_s = r.positive("encode_bytes_per_s");
  c.decode_fixed_s = r.seconds_or("decode_fixed_s", 0);
  c.decode_bytes_per_s = r.positive("decode_bytes_per_s");
  return c;
}

SecondOrderCost read_second_order(const JsonReader& r) {
  const auto or_free = [&r](std::string_view key) { return r.has(key) ? r.at_least_zero(key) : 0; };
  SecondOrderCost c;
  c.inverse_fixed_s = r.seconds_or("inverse_fixed_s", 0);
  c.inverse_s_per_cube = or_free("inverse_s_per_cube");
  c.factor_fixed_s = r.seconds_or("factor_fixed_s", 0);
  c.factor_flops_per_s = or_free("factor_flops_per_s");
  c.factor_s_per_input = or_free("factor_s_per_input");
  c.factor_s_per_element = or_free("factor_s_per_element");
  c.precondition_fixed_s = r.seconds_or("precondition_fixed_s", 0);
  c.precondition_flops_per_s = or_free("precondition_flops_per_s");
  if (!r.has("inverses")) return c;
  for (const JsonReader& s : r.at("inverses").items()) {
    c.inverses.push_back({s.integer_in("dim", 1, INT64_MAX), s.seconds("seconds")});
    if (c.inverses.size() > 1 && c.inverses.back().dim <= c.inverses.end()[-2].dim)
      s.at("dim").refuse("ascending dims");
  }
  return c;
}

// Factors below 1 are measured where a quiet machine is quicker under load by noise.
Contention read_contention(const JsonReader& r) {
  return {r.positive("compute_slowdown"), r.positive("communication_slowdown"),
          r.has("coding_slowdown") ? r.positive("coding_slowdown") : 1};
}

RankSpeed read_rank_speed(const JsonReader& r) {
  RankSpeed s;
  s.rank = static_cast<int>(r.integer_in("rank", 0, kMostRanks));
  if (r.has("compute_factor")) s.compute_factor = r.positive("compute_factor");
  s.delay_s = r.seconds_or("delay_s", 0);
  return s;
}

Cluster read_cluster(const JsonReader& r) {
  Cluster c;
  c.name = r.string_or("name", "");
  c.source = r.string_or("source", "");
  if (r.has("ranks")) c.ranks = static_cast<int>(r.integer_in("ranks", 0, kMostRanks));
  if (r.has("ranks_per_node"))
    c.ranks_per_node = static_cast<int>(r.integer_in("ranks_per_node", 1, kMostRanks));
  if (r.has("network")) c.network = read_link(r.at("network"));
  if (r.has("node")) c.node = read_link(r.at("node"));
  if (r.has("collectives"))
    for (const JsonReader& cost : r.at("collectives").items())
      c.collectives.push_back(read_collective(cost));
  if (!r.has("network") && c.collectives.empty())
    r.fail(
        "expected \"network\" (bandwidth, latency) or measured \"collectives\"; without either "
        "nothing can be predicted");
  if (r.has("codecs"))
    for (const JsonReader& k : r.at("codecs").items()) c.codecs.push_back(read_codec(k));
  if (r.has("second_order")) c.second_order = read_second_order(r.at("second_order"));
  if (r.has("contention")) c.contention = read_contention(r.at("contention"));
  if (r.has("rank_speeds"))
    for (const JsonReader& s : r.at("rank_speeds").items())
      c.rank_speeds.push_back(read_rank_speed(s));
  if (r.has("reduce_s_per_byte")) c.reduce_s_per_byte = r.at_least_zero("reduce_s_per_byte");
  c.tensor_s = r.seconds_or("tensor_s", 0);
  if (r.has("memory_bytes")) c.memory_bytes = r.positive("memory_bytes");
  c.progress_sleep_s = r.optional_seconds("progress_sleep_s");
  if (r.has("noise_floor")) c.noise_floor = r.at_least_zero("noise_floor");
  if (r.has("half_sum_s_per_byte")) c.half_sum_s_per_byte = r.at_least_zero("half_sum_s_per_byte");
  if (r.has("cores")) c.cores = static_cast<int>(r.integer_in("cores", 1, kMostRanks));
  c.start_delay_s = r.seconds_or("start_delay_s", 0);
  return c;
}

}  // namespace

std::string to_json(const Cluster& c) {
  Json json = new_document("cluster");
  json["name"] = c.name;
  json["source"] = c.source;
  json["ranks"] = c.ranks;
  json["ranks_per_node"] = c.ranks_per_node;
  json["network"] = json_of_link(c.network);
  json["node"] = c.node ? json_of_link(*c.node) : Json(nullptr);
  json["collectives"] = Json::array();
  for (const CollectiveCost& cost : c.collectives)
    json["collectives"].push_back(json_of_collective(cost));
  json["codecs"] = Json::array();
  for (const CodecCost& k : c.codecs)
    json["codecs"].push_back({{"name", k.name},
                              {"encode_fixed_s", k.encode_fixed_s},
                              {"encode_bytes_per_s", k.encode_bytes_per_s},
                              {"decode_fixed_s", k.decode_fixed_s},
                              {"decode_bytes_per_s", k.decode_bytes_per_s}});
  if (c.second_order) json["second_order"] = json_of_second_order(*c.second_order);
  json["contention"] = c.contention
                           ? Json{{"compute_slowdown", c.contention->compute_slowdown},
                                  {"communication_slowdown", c.contention->communication_slowdown},
                                  {"coding_slowdown", c.contention->coding_slowdown}}
                           : Json(nullptr);
  json["rank_speeds"] = Json::array();
  for (const RankSpeed& s : c.rank_speeds)
    json["rank_speeds"].push_back(
        {{"rank", s.rank}, {"compute_factor", s.compute_factor}, {"delay_s", s.delay_s}});
  json["reduce_s_per_byte"] = c.reduce_s_per_byte;
  if (c.tensor_s > 0) json["tensor_s"] = c.tensor_s;
  json["memory_bytes"] = json_of(c.memory_bytes);
  json["progress_sleep_s"] = json_of(c.progress_sleep_s);
  json["noise_floor"] = json_of(c.noise_floor);
  if (c.half_sum_s_per_byte > 0) json["half_sum_s_per_byte"] = c.half_sum_s_per_byte;
  if (c.cores) json["cores"] = *c.cores;
  if (c.start_delay_s > 0) json["start_delay_s"] = c.start_delay_s;
  return json.dump(1) + "\n";
}

Cluster cluster_from_json(const std::string& text, const std::string& place) {
  return read_document(text, place, "cluster", read_cluster);
}

Cluster load_cluster(const std::filesystem::path& path) {
  return cluster_from_json(read_file(path), path.string());
}
void save(const Cluster& c, const std::filesystem::path& path) {
  write_file_atomically(path, to_json(c));
}

}  // namespace linerate::doc
