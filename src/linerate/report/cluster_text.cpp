// What a calibration found, for those who decide whether to trust it. It says how well the fit
// predicts a size that it did not see, and what probes measured. The numbers themselves are in the
// document.
#include "linerate/report/cluster_text.hpp"

#include <fmt/format.h>

#include <vector>

#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/doc/json.hpp"

namespace linerate::report {
namespace {

std::string size_range(double low_bytes, double high_bytes) {
  return fmt::format("{} .. {}", format_size(low_bytes), format_size(high_bytes));
}

// "65.5 kB .. 131 kB": the law changes somewhere between two measured sizes, and no measurement
// says where.
std::string switches_of(const doc::CollectiveCost& c) {
  std::vector<std::string> texts;
  for (const doc::RegimeSwitch& s : c.switches)
    texts.push_back(
        size_range(static_cast<double>(s.after_bytes), static_cast<double>(s.before_bytes)));
  return texts.empty() ? "none" : join(texts, ", ");
}

/// One or two sizes, or a barrier, have none that could be left out.
bool shows_error(const doc::CollectiveCost& c) { return c.samples.size() > 2; }

// A star marks what was measured in place.
std::string collectives_of(const doc::Cluster& cluster) {
  std::vector<std::vector<std::string>> rows;
  for (const doc::CollectiveCost& c : cluster.collectives)
    rows.push_back(
        {fmt::format("{}{}", name_of(c.collective), c.in_place ? "*" : ""), std::to_string(c.ranks),
         std::string(name_of(c.dtype)), std::to_string(c.samples.size()),
         c.samples.empty() ? "-" : size_range(c.samples.front().bytes, c.samples.back().bytes),
         fmt::format("{:.2f}%", 100 * c.error_mean), fmt::format("{:.1f}%", 100 * c.error_max),
         switches_of(c)});
  return text_table({{"collective"},
                     {"ranks", true},
                     {"type"},
                     {"sizes", true},
                     {"from .. to", true},
                     {"mean", true},
                     {"max", true},
                     {"switches"}},
                    rows);
}

/// "5.1 GB/s after 20 us"; with a cost for each tensor, "after 20 us and 3 us a tensor". A codec
/// whose speed is not known takes its fixed time alone: "in 20 us".
std::string speed(double fixed_s, double tensor_s, double bytes_per_s) {
  const std::string each =
      tensor_s > 0 ? fmt::format("{} a tensor", format_time(tensor_s)) : std::string();
  const std::string first = each.empty()   ? format_time(fixed_s)
                            : fixed_s == 0 ? each
                                           : fmt::format("{} and {}", format_time(fixed_s), each);
  return bytes_per_s > 0 ? fmt::format("{:.3g} GB/s after {}", bytes_per_s * 1e-9, first)
                         : fmt::format("in {}", first);
}

/// " on cuda"; nothing if that is not known.
std::string on(const std::string& device) { return device.empty() ? "" : " on " + device; }

/// "inverting 4 matrices together takes of one by one: 8 rows 0.27, 16 rows 0.31". Below 1 it pays
/// to invert them together.
std::string batches_of(const std::vector<doc::BatchSample>& samples) {
  if (samples.empty()) return "";
  std::vector<std::string> shares;
  for (const doc::BatchSample& s : samples)
    shares.push_back(fmt::format("{} rows {:.2f}", s.dim,
                                 s.one_by_one_s > 0 ? s.together_s / s.one_by_one_s : 1));
  return fmt::format("inverting {} matrices together takes this share of the time one by one: {}\n",
                     samples.front().count, join(shares, ", "));
}

/// "inverts a matrix of 256 rows in 865 us, of 1024 in 1.29 ms, of 4096 in 28.4 ms"
std::string second_order_text(const doc::SecondOrderCost& cost) {
  std::string text =
      fmt::format("inverts a matrix of 256 rows{} in {}, of 1024 in {}, of 4096 in {}\n",
                  on(cost.device), format_time(cost.inverse_s(256)),
                  format_time(cost.inverse_s(1024)), format_time(cost.inverse_s(4096)));
  text += batches_of(cost.batches);
  if (cost.factor_flops_per_s > 0)
    text += fmt::format("multiplies Kronecker factors at {:.3g} TFLOP/s\n",
                        1e-12 * cost.factor_flops_per_s);
  return text;
}

// Collectives get less than the line: headers, and the time in which nothing is sent. The assumed
// rate is named as such.
std::string line_of(const doc::Link& network) {
  if (!(network.line_rate_bytes_per_s > 0)) return "";
  return fmt::format(
      "collectives get {} of a line of {}{}\n", format_bit_rate(network.bandwidth_bytes_per_s),
      format_bit_rate(network.line_rate_bytes_per_s),
      network.line_rate_assumed ? " (assumed; linerate calibrate --line-rate sets it)" : "");
}

// A line for each thing that a probe measured. What was not measured has no line.
std::string probes_of(const doc::Cluster& c) {
  std::string text = line_of(c.network);
  if (c.contention)
    text += fmt::format(
        "computing is {:.2f} times slower during communication, communication {:.2f} times during "
        "computing, coding and computing {:.2f} times during each other\n",
        c.contention->compute_slowdown, c.contention->communication_slowdown,
        c.contention->coding_slowdown);
  if (c.contention && c.contention->message_s > 0)
    text += fmt::format("a collective takes {} from the computation over it, however small it is\n",
                        format_time(c.contention->message_s));
  if (c.progress_sleep_s)
    text +=
        fmt::format("an idle progress thread wakes within {}\n", format_time(*c.progress_sleep_s));
  if (c.start_delay_s > 0)
    text += fmt::format("a collective starts {} after its rank is ready for it\n",
                        format_time(c.start_delay_s));
  for (const doc::CodecCost& k : c.codecs)
    text += fmt::format("codec {}{}: encodes {} and decodes {}\n", k.name, on(k.device),
                        speed(k.encode_fixed_s, k.encode_tensor_s, k.encode_bytes_per_s),
                        speed(k.decode_fixed_s, k.decode_tensor_s, k.decode_bytes_per_s));
  if (c.half_sum_s_per_byte > 0)
    text += fmt::format("adding 16-bit numbers takes {:.3g} ns a byte longer than f32\n",
                        c.half_sum_s_per_byte * 1e9);
  if (c.cores) text += fmt::format("all ranks compute on the same {} cores\n", *c.cores);
  if (c.second_order) text += second_order_text(*c.second_order);
  if (c.noise_floor) text += fmt::format("noise floor (A/A): {}\n", format_percent(*c.noise_floor));
  return text;
}

doc::Json json_of(const doc::CollectiveCost& c) {
  doc::Json switches = doc::Json::array();
  for (const doc::RegimeSwitch& s : c.switches)
    switches.push_back({{"after_bytes", s.after_bytes}, {"before_bytes", s.before_bytes}});
  return {{"collective", name_of(c.collective)},
          {"ranks", c.ranks},
          {"dtype", name_of(c.dtype)},
          {"in_place", c.in_place},
          {"sizes", c.samples.size()},
          {"segments", c.segments.size()},
          {"error_mean", shows_error(c) ? doc::Json(c.error_mean) : doc::Json(nullptr)},
          {"error_max", shows_error(c) ? doc::Json(c.error_max) : doc::Json(nullptr)},
          {"switches", switches}};
}

}  // namespace

std::string to_text(const doc::Cluster& cluster) {
  return collectives_of(cluster) +
         "mean, max: relative error of each inner size when the fit does not see it.  "
         "*: in place\n" +
         probes_of(cluster);
}

std::string summary_json(const doc::Cluster& cluster, const std::vector<std::string>& notes) {
  doc::Json json = {{"collectives", doc::Json::array()}};
  for (const doc::CollectiveCost& c : cluster.collectives)
    json["collectives"].push_back(json_of(c));
  if (cluster.contention)
    json["contention"] = {{"compute_slowdown", cluster.contention->compute_slowdown},
                          {"communication_slowdown", cluster.contention->communication_slowdown},
                          {"coding_slowdown", cluster.contention->coding_slowdown},
                          {"message_s", cluster.contention->message_s}};
  json["network"] = {{"bandwidth_bytes_per_s", cluster.network.bandwidth_bytes_per_s},
                     {"line_rate_bytes_per_s", cluster.network.line_rate_bytes_per_s},
                     {"line_rate_assumed", cluster.network.line_rate_assumed}};
  json["progress_sleep_s"] = doc::json_of(cluster.progress_sleep_s);
  json["noise_floor"] = doc::json_of(cluster.noise_floor);
  json["ranks_per_node"] = cluster.ranks_per_node;
  json["half_sum_s_per_byte"] = cluster.half_sum_s_per_byte;
  json["cores"] = cluster.cores ? doc::Json(*cluster.cores) : doc::Json(nullptr);
  json["start_delay_s"] = cluster.start_delay_s;
  json["notes"] = notes;
  return json.dump(2) + "\n";
}

}  // namespace linerate::report
