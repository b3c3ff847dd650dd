// What `explain` prints, a function for each part, in the order of explain_text(). Tables are cut
// at a dozen rows, because a trace may have thousands of steps and collectives; --json has all of
// them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/explain/explanation.hpp"

namespace linerate::trace {
namespace {

constexpr std::size_t kMostRows = 12, kMostRankRows = 32;
constexpr std::string_view kIndent = "  ";

using Rows = std::vector<std::vector<std::string>>;

std::string time_or(const std::optional<double>& s) { return s ? format_time(*s) : "n/a"; }
std::string known(bool is_known, double s) { return is_known ? format_time(s) : "n/a"; }
std::string percent_or(const std::optional<double>& share) {
  return share ? format_percent(*share) : "n/a";
}

/// Which times are known. The others are n/a in the text, and null in JSON.
struct Known {
  bool times = true, computation = true, communication = true, both = true;
  explicit Known(const Breakdown& b)
      : times(!b.times_unknown),
        computation(!b.computation_unknown),
        communication(!b.communication_unknown && b.has_device),
        both(computation && communication) {}
};

void rest(std::string& out, std::size_t shown, std::size_t all, std::string_view what) {
  if (all > shown) out += fmt::format("  ... and {} more {} (--json has all)\n", all - shown, what);
}

std::string device_of(const Breakdown& b) {
  if (b.cpu_device) return "the CPU is the device";
  return b.device.empty() ? "device times are unions of its kernels" : "the device is " + b.device;
}

void whole(std::string& out, const Breakdown& b) {
  const Known is(b);
  const std::string of_steps = b.updates > 1 ? fmt::format(" of {} steps", b.updates) : "";
  out +=
      fmt::format("{} of {} rank{}, {} {}{}{}; {}\n\n", b.ranks.size(),
                  b.world_size > 0 ? std::to_string(b.world_size) : "an unknown number of",
                  b.world_size == 1 ? "" : "s", b.steps.size(), b.updates > 1 ? "period" : "step",
                  b.steps.size() == 1 ? "" : "s", of_steps, device_of(b));
  out += fmt::format("over the whole file{}\n", b.ranks.size() > 1 ? ", mean over ranks" : "");
  out += fmt::format("  compute busy           {:>10}\n", known(is.computation, b.whole.compute_s));
  out += fmt::format(
      "  communication busy     {:>10}{}\n", known(is.communication, b.whole.communication_s),
      b.cpu_device || b.world_size == 1 ? ""
                                        : "   includes waiting for other ranks: not network time");
  out += fmt::format("  overlap of the two     {:>10}\n", known(is.both, b.whole.overlap_s));
  out += fmt::format("  exposed communication  {:>10}\n", known(is.both, b.whole.exposed_s));
  const auto bytes = [](const std::optional<std::int64_t>& stated,
                        const std::optional<std::int64_t>& deduced) {
    if (stated && stated == deduced)
      return fmt::format("{:>10}", format_size(static_cast<double>(*stated)));
    return fmt::format("{:>10}{}", stated ? format_size(static_cast<double>(*stated)) : "unknown",
                       deduced ? fmt::format("   {} deduced from launches",
                                             format_size(static_cast<double>(*deduced)))
                               : "");
  };
  out += fmt::format("  bytes of collectives   {}\n",
                     bytes(b.collective_bytes, b.collective_bytes_deduced));
  out += fmt::format("  bytes of gradients     {}\n\n",
                     bytes(b.gradient_bytes, b.gradient_bytes_deduced));
}

void steps(std::string& out, const Breakdown& b) {
  if (b.steps.empty()) return;
  const Known is(b);
  Rows rows;
  for (std::size_t i = 0; i < std::min(kMostRows, b.steps.size()); ++i) {
    const StepRow& s = b.steps[i];
    rows.push_back({fmt::format("{}{}", s.cut ? "cut " : "", s.label), format_time(s.length_s),
                    known(is.computation, s.busy.compute_s),
                    known(is.communication, s.busy.communication_s),
                    known(is.both, s.busy.overlap_s), known(is.both, s.busy.exposed_s),
                    known(is.computation, s.busy.idle_s)});
  }
  out += fmt::format("each step{}\n",
                     b.ranks.size() > 1 ? ", mean over ranks (host gaps: lower median)" : "");
  out += text_table({{"step", true},
                     {"duration", true},
                     {"compute", true},
                     {"comm.", true},
                     {"overlap", true},
                     {"exposed", true},
                     {"host gaps", true}},
                    rows, kIndent);
  rest(out, kMostRows, b.steps.size(), "steps");
  out += "\n";
}

/// Rows of equal operation, bytes and ranks are one line.
void collectives(std::string& out, const Breakdown& b) {
  if (b.collectives.empty()) return;
  struct Line {
    std::size_t times = 0;
    std::vector<double> duration, transfer, skew, bus;
  };
  std::map<std::tuple<double, CommOp, std::int64_t, int>, Line> lines;
  std::map<std::pair<CommOp, std::pair<std::int64_t, int>>, double> total;
  const auto key_of = [](const CollectiveRow& c) {
    return std::pair(c.op, std::pair(c.bytes.value_or(-1), c.ranks.value_or(-1)));
  };
  for (const CollectiveRow& c : b.collectives) total[key_of(c)] += c.duration_s;
  for (const CollectiveRow& c : b.collectives) {
    Line& l = lines[{-total[key_of(c)], c.op, c.bytes.value_or(-1), c.ranks.value_or(-1)}];
    if (!b.times_unknown) l.duration.push_back(c.duration_s);
    ++l.times;
    if (c.transfer_s) l.transfer.push_back(*c.transfer_s);
    if (c.skew_s) l.skew.push_back(*c.skew_s);
    if (c.busbw_bytes_per_s) l.bus.push_back(*c.busbw_bytes_per_s);
  }
  const auto mid = [](const std::vector<double>& v) {
    return v.empty() ? std::string("n/a") : format_time(median(v));
  };
  Rows rows;
  for (const auto& [key, l] : lines) {
    if (rows.size() == kMostRows) break;
    const auto& [weight, op, bytes, ranks] = key;
    rows.push_back({std::string(name_of(op)), std::to_string(l.times),
                    bytes >= 0 ? format_size(static_cast<double>(bytes)) : "unknown",
                    ranks > 0 ? std::to_string(ranks) : "?", mid(l.duration), mid(l.transfer),
                    mid(l.skew), l.bus.empty() ? "n/a" : format_rate(median(l.bus))});
  }
  out += "collectives of one operation, size and number of ranks, by their medians\n";
  out += text_table({{"collective"},
                     {"times", true},
                     {"bytes", true},
                     {"ranks", true},
                     {"duration", true},
                     {"transfer", true},
                     {"wait", true},
                     {"busbw", true}},
                    rows, kIndent);
  rest(out, kMostRows, lines.size(), "kinds of collectives");
  out += "\n";
}

std::string clock_of(const RankRow& r) {
  const double s = static_cast<double>(r.clock_offset_ns) * 1e-9;
  return (s < 0 ? "-" : "+") + format_time(std::abs(s));
}

void ranks(std::string& out, const Breakdown& b) {
  if (b.ranks.size() < 2) return;
  const Known is(b);
  Rows rows;
  for (std::size_t i = 0; i < std::min(kMostRankRows, b.ranks.size()); ++i) {
    const RankRow& r = b.ranks[i];
    rows.push_back({std::to_string(r.rank), known(is.computation, r.whole.compute_s),
                    known(is.communication, r.whole.communication_s),
                    known(is.both, r.whole.exposed_s), clock_of(r),
                    r.times_last ? std::to_string(*r.times_last) : "n/a",
                    r.delay_per_step_s ? format_time(*r.delay_per_step_s) + "/step" : "n/a"});
  }
  out += "each rank, over the whole file\n";
  out += text_table({{"rank", true},
                     {"compute", true},
                     {"comm.", true},
                     {"exposed", true},
                     {"clock", true},
                     {"times last", true},
                     {"comes late by", true}},
                    rows, kIndent);
  rest(out, kMostRankRows, b.ranks.size(), "ranks");
  out += "\n";
}

void buckets(std::string& out, const Breakdown& b) {
  if (!b.buckets) return;
  std::vector<std::string> sizes;
  for (std::size_t i = 0; i < std::min<std::size_t>(16, b.buckets->bytes.size()); ++i)
    sizes.push_back(format_size(static_cast<double>(b.buckets->bytes[i])));
  out += fmt::format("buckets of step {}: {}{}\n  {}\n\n", b.buckets->step, join(sizes, ", "),
                     b.buckets->bytes.size() > 16 ? ", ..." : "", b.buckets->verdict);
}

void network(std::string& out, const Breakdown& b) {
  if (b.scaling_factor) {
    const doc::Bounded& alone = b.one_rank->step_s;
    out += fmt::format("scaling factor {:#.3g} = T_1 / T_n = {} / {}\n", *b.scaling_factor,
                       format_time(alone.value), time_or(b.step_s));
    out += fmt::format("  T_1: {}\n", b.one_rank->origin);
    if (alone.has_interval())
      out += fmt::format(
          "  T_1 lies between {} and {}, the scaling factor between {:#.2g} and {:#.2g}\n",
          format_time(*alone.low), format_time(*alone.high), *alone.low / *b.step_s,
          *alone.high / *b.step_s);
  }
  if (b.line_rate_bytes_per_s)
    out +=
        fmt::format("network at {}: {} of the line rate over the steps, {} while communicating\n",
                    format_bit_rate(*b.line_rate_bytes_per_s), percent_or(b.utilisation_step),
                    percent_or(b.utilisation_communicating));
  if (b.scaling_factor || b.line_rate_bytes_per_s) out += "\n";
}

void verdict(std::string& out, const Verdict& v) {
  out += fmt::format("verdict: {}\n  {}\n", finding_text(v), v.reason);
}

void causes(std::string& out, const Breakdown& b) {
  const std::vector<std::string> texts = cause_texts(b.path);
  for (std::size_t i = 0; i < std::min(kMostRows, texts.size()); ++i) {
    std::string text = texts[i];
    if (const std::size_t gain = text.find(" Without this"); gain != std::string::npos)
      text.replace(gain, 1, "\n  ");
    out += fmt::format("  cause: {}\n", text);
  }
  rest(out, kMostRows, texts.size(), "causes");
}

void gains(std::string& out, const Verdict& v) {
  out += "\nhow much shorter a step would be\n" +
         text_table({{"with"}, {"shorter by", true}, {"at most", true}}, gain_rows(v), kIndent) +
         "\n";
}

/// What the tables above call by a word of their own.
void words(std::string& out, const Breakdown& b, const Verdict& v) {
  std::vector<std::pair<std::string_view, std::string>> all;
  if (b.scaling_factor) {
    all.emplace_back("T_1", "the step of one rank alone");
    all.emplace_back("T_n", "the median step of the job");
  }
  if (v.confidence)
    all.emplace_back(
        "confidence",
        "share of the steps that lead to the verdict, with one more for it and one against");
  all.emplace_back("exposed", "communication that no computation of the same rank covers");
  if (!b.steps.empty()) all.emplace_back("host gaps", "nothing runs on the device");
  if (!b.collectives.empty()) {
    all.emplace_back("transfer", "from the arrival of the last rank on: moving data");
    all.emplace_back("wait", "the rest of the duration: until the last rank arrives");
    all.emplace_back("busbw", "bytes a second that each link carries, as nccl-tests states it");
  }
  if (b.ranks.size() > 1)
    all.emplace_back("clock", "how far the rank's clock is ahead of rank 0's");
  out += "words\n";
  for (const auto& [word, meaning] : all) out += fmt::format("  {:<10}  {}\n", word, meaning);
  out += fmt::format(
      "  verdict     input-bound above {} idle while data loads, host-bound above {} idle,\n"
      "              compute-bound below {} exposed; else what exposed communication spends\n",
      format_percent(v.thresholds.data_idle), format_percent(v.thresholds.host_idle),
      format_percent(v.thresholds.exposed));
}

}  // namespace

std::string explain_text(const Breakdown& b, const Verdict& v) {
  std::string out;
  verdict(out, v);
  causes(out, b);
  gains(out, v);
  network(out, b);
  whole(out, b);
  steps(out, b);
  collectives(out, b);
  ranks(out, b);
  buckets(out, b);
  words(out, b, v);
  for (std::size_t i = 0; i < std::min<std::size_t>(20, b.notes.size()); ++i)
    out += fmt::format("note: {}\n", b.notes[i]);
  rest(out, 20, b.notes.size(), "notes");
  return out;
}

// The JSON of `explain --json`, key by key (docs/explain.md, "Keys"). Unknown values are null and
// never 0: a reader that sums a column must notice what is missing.

namespace {

using doc::Json;
using doc::json_of;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json busy_json(const Busy& b, const Known& known) {
  Json j;
  const auto value = [](bool is_known, double v) { return is_known ? Json(v) : Json(nullptr); };
  j["window_s"] = value(known.times, b.window_s);
  j["compute_busy_s"] = value(known.computation, b.compute_s);
  j["communication_busy_s"] = value(known.communication, b.communication_s);
  j["overlap_s"] = value(known.both, b.overlap_s);
  j["exposed_communication_s"] = value(known.both, b.exposed_s);
  j["idle_s"] = value(known.computation, b.idle_s);
  j["loading_idle_s"] = value(known.computation, b.loading_idle_s);
  return j;
}

Json collective_json(const CollectiveRow& c, const Known& known) {
  Json j;
  j["name"] = std::string(name_of(c.op));
  j["bytes"] = or_null(c.bytes);
  j["bytes_deduced"] = c.bytes_deduced;
  j["ranks"] = or_null(c.ranks);
  j["step"] = c.step >= 0 ? Json(c.step) : Json(nullptr);
  j["duration_s"] = known.times ? Json(c.duration_s) : Json(nullptr);
  j["exposed_s"] = or_null(c.exposed_s);
  j["transfer_s"] = or_null(c.transfer_s);
  j["skew_s"] = or_null(c.skew_s);
  j["last_rank"] = or_null(c.last_rank);
  j["algbw_bytes_per_s"] = or_null(c.algbw_bytes_per_s);
  j["busbw_bytes_per_s"] = or_null(c.busbw_bytes_per_s);
  if (c.busbw_at_least_bytes_per_s) j["busbw_at_least_bytes_per_s"] = *c.busbw_at_least_bytes_per_s;
  return j;
}

Json rank_json(const RankRow& r, const Known& known) {
  Json j;
  j["rank"] = r.rank >= 0 ? Json(r.rank) : Json(nullptr);
  j["source"] = r.source;
  j["busy"] = busy_json(r.whole, known);
  j["clock_offset_s"] = static_cast<double>(r.clock_offset_ns) * 1e-9;
  j["times_last"] = or_null(r.times_last);
  j["delay_per_step_s"] = or_null(r.delay_per_step_s);
  return j;
}

Json verdict_json(const Verdict& v, const Breakdown& b) {
  const bool steps = b.has_steps, device = steps && !b.computation_unknown;
  const bool heard = device && !b.communication_unknown;
  const auto value = [](bool is_known, const Json& j) { return is_known ? j : Json(nullptr); };
  Json j;
  j["reason"] = v.reason;
  j["leans"] = v.leans();
  j["idle_share"] = value(device, v.idle_share);
  j["loading_share"] = value(device, v.loading_share);
  j["exposed_share"] = value(heard, v.exposed_share);
  j["exposed_transfer_share"] = value(heard, {v.transfer_share_low, v.transfer_share_high});
  j["exposed_wait_share"] = value(heard, {v.wait_share_low, v.wait_share_high});
  j["threshold_data_idle"] = v.thresholds.data_idle;
  j["threshold_host_idle"] = v.thresholds.host_idle;
  j["threshold_exposed"] = v.thresholds.exposed;
  const auto by_remedy = [](const RemedyShares& shares) {
    Json of;
    for (std::size_t r = 0; r < kRemedies; ++r)
      of[std::string(kRemedyKeys[r])] = json_of(shares[r]);
    return of;
  };
  j["gain_share_of_step"] = by_remedy(v.gains);
  j["gain_ceiling_share_of_step"] = by_remedy(v.ceilings);
  j["may_communicate"] = b.may_communicate;
  j["may_communicate_share"] = value(device, b.may_communicate_share);
  return j;
}

Json phase_json(const std::optional<StepPhase>& phase) {
  return phase ? Json(std::string(name_of(*phase))) : Json(nullptr);
}

Json cause_json(const Cause& c) {
  Json j;
  j["kind"] = std::string(name_of(c.kind));
  j["rank"] = or_null(c.rank);
  j["per_step_s"] = c.per_step_s;
  j["steps_with_it"] = c.steps_with_it;
  j["steps"] = c.steps;
  j["where"] = phase_json(c.where);
  j["gain_share_of_step"] = or_null(c.gain_share);
  j["gain_ceiling_share_of_step"] = or_null(c.most_share);
  return j;
}

Json irregular_json(const Irregularity& i) {
  Json j;
  j["step"] = i.step;
  j["rank"] = or_null(i.rank);
  j["longer_s"] = i.longer_s;
  j["held_up_step"] = or_null(i.held_up);
  j["where"] = i.communication ? Json("communication") : phase_json(i.where);
  return j;
}

}  // namespace

std::string explain_json(const Breakdown& b, const Verdict& v) {
  const Known known(b);
  Json j;
  j["steps_s"] = Json::array();
  for (const double s : b.marks_s) j["steps_s"].push_back(s);
  // The fixed keys compare with other tools, which read stamps as doubles; "exact" has them from
  // the digits.
  const Json whole = busy_json(b.whole_as_doubles, known);
  for (const auto& [key, value] : whole.items())
    if (key.ends_with("busy_s") || key == "overlap_s" || key == "exposed_communication_s")
      j[key] = value;
  j["exact"] = busy_json(b.whole, known);
  j["collective_bytes"] = or_null(b.collective_bytes);
  j["gradient_bytes"] = or_null(b.gradient_bytes);
  j["collective_bytes_deduced"] = or_null(b.collective_bytes_deduced);
  j["gradient_bytes_deduced"] = or_null(b.gradient_bytes_deduced);
  j["verdict"] = std::string(name_of(v.finding));
  j["confidence"] = json_of(v.confidence);
  j["why"] = verdict_json(v, b);
  j["causes"] = Json::array();
  for (const Cause& c : b.path.causes) j["causes"].push_back(cause_json(c));
  j["irregular_steps"] = Json::array();
  for (const Irregularity& i : b.path.irregular) j["irregular_steps"].push_back(irregular_json(i));
  j["ranks_of_job"] = b.world_size > 0 ? Json(b.world_size) : Json(nullptr);
  j["ranks_missing"] = b.ranks_missing;
  j["step_s"] = json_of(b.step_s);
  j["one_rank_step_s"] = b.one_rank ? Json(b.one_rank->step_s.value) : Json(nullptr);
  j["one_rank_step_low_s"] = b.one_rank ? json_of(b.one_rank->step_s.low) : Json(nullptr);
  j["one_rank_step_high_s"] = b.one_rank ? json_of(b.one_rank->step_s.high) : Json(nullptr);
  j["one_rank_step_origin"] = b.one_rank ? Json(b.one_rank->origin) : Json(nullptr);
  j["scaling_factor"] = json_of(b.scaling_factor);
  j["line_rate_bytes_per_s"] = json_of(b.line_rate_bytes_per_s);
  j["utilisation_over_steps"] = json_of(b.utilisation_step);
  j["utilisation_while_communicating"] = json_of(b.utilisation_communicating);
  j["steps"] = Json::array();
  for (const StepRow& s : b.steps) {
    Json row = busy_json(s.busy, known);
    row["number"] = s.number;
    row["duration_s"] = s.duration_s;
    row["marks"] = s.marks;
    row["cut"] = s.cut;
    j["steps"].push_back(row);
  }
  j["ranks"] = Json::array();
  for (const RankRow& r : b.ranks) j["ranks"].push_back(rank_json(r, known));
  if (b.buckets)
    j["bucket_plan"] = {
        {"step", b.buckets->step},
        {"bytes", b.buckets->bytes},
        {"matches_ddp", b.buckets->matches_rule},
        {"strategy", b.buckets->strategy.empty() ? Json(nullptr) : Json(b.buckets->strategy)},
        {"says", b.buckets->verdict}};
  else
    j["bucket_plan"] = nullptr;
  j["clock_residual_s"] = static_cast<double>(b.clock_residual_ns) * 1e-9;
  j["notes"] = b.notes;
  j["collectives"] = Json::array();
  for (const CollectiveRow& c : b.collectives)
    j["collectives"].push_back(collective_json(c, known));
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace linerate::trace
