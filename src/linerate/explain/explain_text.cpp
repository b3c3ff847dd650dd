// What `explain` prints, a function for each part, in the order of explain_text(). Tables are cut
// at a dozen rows, because a trace may have thousands of steps and collectives; --json has all of
// them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <ranges>
#include <string_view>
#include <tuple>
#include <utility>

#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/job/by_start.hpp"

namespace linerate::trace {
namespace {

constexpr std::size_t kMostRows = 12, kMostRankRows = 32;
constexpr std::string_view kIndent = "  ";

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
  const auto line = [&out](const char* what, const std::string& value,
                           const std::string& more = "") {
    out += fmt::format("  {:<21}  {:>10}{}\n", what, value, more);
  };
  const auto bytes_line = [&line](const char* what, const std::optional<std::int64_t>& stated,
                                  const std::optional<std::int64_t>& deduced) {
    const auto size = [](std::int64_t bytes) { return format_size(static_cast<double>(bytes)); };
    line(what, stated ? size(*stated) : "unknown",
         deduced && deduced != stated ? fmt::format("   {} deduced from launches", size(*deduced))
                                      : "");
  };
  line("compute busy", known(is.computation, b.whole.compute_s));
  line("communication busy", known(is.communication, b.whole.communication_s),
       b.cpu_device || b.world_size == 1 ? ""
                                         : "   includes waiting for other ranks: not network time");
  line("overlap of the two", known(is.both, b.whole.overlap_s));
  line("exposed communication", known(is.both, b.whole.exposed_s));
  bytes_line("bytes of collectives", b.collective_bytes, b.collective_bytes_deduced);
  bytes_line("bytes of gradients", b.gradient_bytes, b.gradient_bytes_deduced);
  out += "\n";
}

void steps(std::string& out, const Breakdown& b) {
  if (b.steps.empty()) return;
  const Known is(b);
  TextRows rows;
  for (const StepRow& s : b.steps | std::views::take(kMostRows))
    rows.push_back({(s.cut ? "cut " : "") + s.label, format_time(s.length_s),
                    known(is.computation, s.busy.compute_s),
                    known(is.communication, s.busy.communication_s),
                    known(is.both, s.busy.overlap_s), known(is.both, s.busy.exposed_s),
                    known(is.computation, s.busy.idle_s)});
  out += fmt::format("each step{}\n",
                     b.ranks.size() > 1 ? ", mean over ranks (host gaps: lower median)" : "");
  out +=
      text_table({">step", ">duration", ">compute", ">comm.", ">overlap", ">exposed", ">host gaps"},
                 rows, kIndent);
  rest(out, kMostRows, b.steps.size(), "steps");
  out += "\n";
}

/// Rows of equal operation, bytes and ranks are one line.
void collectives(std::string& out, const Breakdown& b) {
  if (b.collectives.empty()) return;
  struct Line {
    std::size_t times = 0;
    double total_s = 0;
    std::vector<double> duration, transfer, skew, bus;
  };
  using Kind = std::tuple<CommOp, std::int64_t, int>;
  std::map<Kind, Line> kinds;
  for (const CollectiveRow& c : b.collectives) {
    Line& l = kinds[{c.op, c.bytes.value_or(-1), c.ranks.value_or(-1)}];
    ++l.times, l.total_s += c.duration_s;
    if (!b.times_unknown) l.duration.push_back(c.duration_s);
    if (c.transfer_s) l.transfer.push_back(*c.transfer_s);
    if (c.skew_s) l.skew.push_back(*c.skew_s);
    if (c.busbw_bytes_per_s) l.bus.push_back(*c.busbw_bytes_per_s);
  }
  std::vector<std::pair<Kind, Line>> lines(kinds.begin(), kinds.end());
  std::ranges::stable_sort(lines, std::greater(), [](const auto& l) { return l.second.total_s; });
  const auto mid = [](const std::vector<double>& v) {
    return v.empty() ? std::string("n/a") : format_time(median(v));
  };
  TextRows rows;
  for (const auto& [kind, l] : lines | std::views::take(kMostRows)) {
    const auto& [op, bytes, ranks] = kind;
    rows.push_back({std::string(name_of(op)), std::to_string(l.times),
                    bytes >= 0 ? format_size(static_cast<double>(bytes)) : "unknown",
                    ranks > 0 ? std::to_string(ranks) : "?", mid(l.duration), mid(l.transfer),
                    mid(l.skew), l.bus.empty() ? "n/a" : format_rate(median(l.bus))});
  }
  out += "collectives of one operation, size and number of ranks, by their medians\n";
  out += text_table(
      {"collective", ">times", ">bytes", ">ranks", ">duration", ">transfer", ">wait", ">busbw"},
      rows, kIndent);
  rest(out, kMostRows, lines.size(), "kinds of collectives");
  out += "\n";
}

std::string clock_of(const RankRow& r) {
  const double s = in_seconds(r.clock_offset_ns);
  return (s < 0 ? "-" : "+") + format_time(std::abs(s));
}

void ranks(std::string& out, const Breakdown& b) {
  if (b.ranks.size() < 2) return;
  const Known is(b);
  TextRows rows;
  for (const RankRow& r : b.ranks | std::views::take(kMostRankRows))
    rows.push_back({std::to_string(r.rank), known(is.computation, r.whole.compute_s),
                    known(is.communication, r.whole.communication_s),
                    known(is.both, r.whole.exposed_s), clock_of(r),
                    r.times_last ? std::to_string(*r.times_last) : "n/a",
                    r.delay_per_step_s ? format_time(*r.delay_per_step_s) + "/step" : "n/a"});
  out += "each rank, over the whole file\n";
  out += text_table(
      {">rank", ">compute", ">comm.", ">exposed", ">clock", ">times last", ">comes late by"}, rows,
      kIndent);
  rest(out, kMostRankRows, b.ranks.size(), "ranks");
  out += "\n";
}

void buckets(std::string& out, const Breakdown& b) {
  if (!b.buckets) return;
  std::vector<std::string> sizes;
  for (const std::int64_t bytes : b.buckets->bytes | std::views::take(16))
    sizes.push_back(format_size(static_cast<double>(bytes)));
  if (b.buckets->bytes.size() > 16) sizes.push_back("...");
  out += fmt::format("buckets of step {}: {}\n  {}\n\n", b.buckets->step, join(sizes, ", "),
                     b.buckets->verdict);
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

void causes(std::string& out, const Breakdown& b) {
  const std::vector<std::string> texts = cause_texts(b.path);
  for (std::string text : texts | std::views::take(kMostRows)) {
    if (const std::size_t gain = text.find(" Without this"); gain != std::string::npos)
      text.replace(gain, 1, "\n  ");
    out += fmt::format("  cause: {}\n", text);
  }
  rest(out, kMostRows, texts.size(), "causes");
}

void gains(std::string& out, const Verdict& v) {
  out += "\nhow much shorter a step would be\n" +
         text_table({"with", ">shorter by", ">at most"}, gain_rows(v), kIndent) + "\n";
}

/// What the tables above call by a word of their own.
void words(std::string& out, const Breakdown& b, const Verdict& v) {
  const bool scaled = b.scaling_factor.has_value(), matched = !b.collectives.empty();
  const std::tuple<bool, const char*, const char*> all[] = {
      {scaled, "T_1", "the step of one rank alone"},
      {scaled, "T_n", "the median step of the job"},
      {v.confidence.has_value(), "confidence",
       "share of the steps that lead to the verdict, with one more for it and one against"},
      {true, "exposed", "communication that no computation of the same rank covers"},
      {!b.steps.empty(), "host gaps", "nothing runs on the device"},
      {matched, "transfer", "from the arrival of the last rank on: moving data"},
      {matched, "wait", "the rest of the duration: until the last rank arrives"},
      {matched, "busbw", "bytes a second that each link carries, as nccl-tests states it"},
      {b.ranks.size() > 1, "clock", "how far the rank's clock is ahead of rank 0's"}};
  out += "words\n";
  for (const auto& [shown, word, meaning] : all)
    if (shown) out += fmt::format("  {:<10}  {}\n", word, meaning);
  out += fmt::format(
      "  verdict     input-bound above {} idle while data loads, host-bound above {} idle,\n"
      "              compute-bound below {} exposed; else what exposed communication spends\n",
      format_percent(v.thresholds.data_idle), format_percent(v.thresholds.host_idle),
      format_percent(v.thresholds.exposed));
}

// The JSON of `explain --json`, key by key (docs/explain.md, "Keys"). Unknown values are null and
// never 0: a reader that sums a column must notice what is missing.

using doc::Json;

Json if_known(bool is_known, const Json& value) { return is_known ? value : Json(); }

Json or_null(const auto& value) { return value ? Json(*value) : Json(); }

Json busy_json(const Busy& b, const Known& known) {
  return {{"window_s", if_known(known.times, b.window_s)},
          {"compute_busy_s", if_known(known.computation, b.compute_s)},
          {"communication_busy_s", if_known(known.communication, b.communication_s)},
          {"overlap_s", if_known(known.both, b.overlap_s)},
          {"exposed_communication_s", if_known(known.both, b.exposed_s)},
          {"idle_s", if_known(known.computation, b.idle_s)},
          {"loading_idle_s", if_known(known.computation, b.loading_idle_s)}};
}

Json collective_json(const CollectiveRow& c, const Known& known) {
  Json j = {{"name", name_of(c.op)},
            {"bytes", or_null(c.bytes)},
            {"bytes_deduced", c.bytes_deduced},
            {"ranks", or_null(c.ranks)},
            {"step", if_known(c.step >= 0, c.step)},
            {"duration_s", if_known(known.times, c.duration_s)},
            {"exposed_s", or_null(c.exposed_s)},
            {"transfer_s", or_null(c.transfer_s)},
            {"skew_s", or_null(c.skew_s)},
            {"last_rank", or_null(c.last_rank)},
            {"algbw_bytes_per_s", or_null(c.algbw_bytes_per_s)},
            {"busbw_bytes_per_s", or_null(c.busbw_bytes_per_s)}};
  if (c.busbw_at_least_bytes_per_s) j["busbw_at_least_bytes_per_s"] = *c.busbw_at_least_bytes_per_s;
  return j;
}

Json rank_json(const RankRow& r, const Known& known) {
  return {
      {"rank", if_known(r.rank >= 0, r.rank)}, {"source", r.source},
      {"busy", busy_json(r.whole, known)},     {"clock_offset_s", in_seconds(r.clock_offset_ns)},
      {"times_last", or_null(r.times_last)},   {"delay_per_step_s", or_null(r.delay_per_step_s)}};
}

Json step_json(const StepRow& s, const Known& known) {
  Json j = busy_json(s.busy, known);
  j["number"] = s.number;
  j["duration_s"] = s.duration_s;
  j["marks"] = s.marks;
  j["cut"] = s.cut;
  return j;
}

Json remedies_json(const RemedyShares& shares) {
  Json j;
  for (std::size_t r = 0; r < kRemedies; ++r) j[std::string(kRemedyKeys[r])] = or_null(shares[r]);
  return j;
}

Json verdict_json(const Verdict& v, const Breakdown& b) {
  const bool device = b.has_steps && !b.computation_unknown;
  const bool heard = device && !b.communication_unknown;
  return {
      {"reason", v.reason},
      {"leans", v.leans()},
      {"idle_share", if_known(device, v.idle_share)},
      {"loading_share", if_known(device, v.loading_share)},
      {"exposed_share", if_known(heard, v.exposed_share)},
      {"exposed_transfer_share", if_known(heard, {v.transfer_share_low, v.transfer_share_high})},
      {"exposed_wait_share", if_known(heard, {v.wait_share_low, v.wait_share_high})},
      {"threshold_data_idle", v.thresholds.data_idle},
      {"threshold_host_idle", v.thresholds.host_idle},
      {"threshold_exposed", v.thresholds.exposed},
      {"gain_share_of_step", remedies_json(v.gains)},
      {"gain_ceiling_share_of_step", remedies_json(v.ceilings)},
      {"may_communicate", b.may_communicate},
      {"may_communicate_share", if_known(device, b.may_communicate_share)}};
}

Json phase_json(const std::optional<StepPhase>& phase) {
  return phase ? Json(name_of(*phase)) : Json();
}

Json cause_json(const Cause& c) {
  return {{"kind", name_of(c.kind)},
          {"rank", or_null(c.rank)},
          {"per_step_s", c.per_step_s},
          {"steps_with_it", c.steps_with_it},
          {"steps", c.steps},
          {"where", phase_json(c.where)},
          {"gain_share_of_step", or_null(c.gain_share)},
          {"gain_ceiling_share_of_step", or_null(c.most_share)}};
}

Json irregular_json(const Irregularity& i) {
  return {{"step", i.step},
          {"rank", or_null(i.rank)},
          {"longer_s", i.longer_s},
          {"held_up_step", or_null(i.held_up)},
          {"where", i.communication ? Json("communication") : phase_json(i.where)}};
}

Json buckets_json(const BucketPlan& plan) {
  return {{"step", plan.step},
          {"bytes", plan.bytes},
          {"matches_ddp", plan.matches_rule},
          {"strategy", if_known(!plan.strategy.empty(), plan.strategy)},
          {"says", plan.verdict}};
}

Json list_of(const auto& values, const auto& json_of_one, const auto&... known) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(json_of_one(value, known...));
  return list;
}

}  // namespace

std::string explain_text(const Breakdown& b, const Verdict& v) {
  std::string out = fmt::format("verdict: {}\n  {}\n", finding_text(v), v.reason);
  causes(out, b);
  gains(out, v);
  network(out, b);
  whole(out, b);
  steps(out, b);
  collectives(out, b);
  ranks(out, b);
  buckets(out, b);
  words(out, b, v);
  for (const std::string& note : b.notes | std::views::take(20)) out += "note: " + note + "\n";
  rest(out, 20, b.notes.size(), "notes");
  return out;
}

std::string explain_json(const Breakdown& b, const Verdict& v) {
  const Known known(b);
  Json j = {{"steps_s", b.marks_s}};
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
  j["verdict"] = name_of(v.finding);
  j["confidence"] = or_null(v.confidence);
  j["why"] = verdict_json(v, b);
  j["causes"] = list_of(b.path.causes, cause_json);
  j["irregular_steps"] = list_of(b.path.irregular, irregular_json);
  j["ranks_of_job"] = if_known(b.world_size > 0, b.world_size);
  j["ranks_missing"] = b.ranks_missing;
  j["step_s"] = or_null(b.step_s);
  const doc::Bounded alone = b.one_rank ? b.one_rank->step_s : doc::Bounded{};
  j["one_rank_step_s"] = if_known(b.one_rank.has_value(), alone.value);
  j["one_rank_step_low_s"] = or_null(alone.low);
  j["one_rank_step_high_s"] = or_null(alone.high);
  j["one_rank_step_origin"] = b.one_rank ? Json(b.one_rank->origin) : Json(nullptr);
  j["scaling_factor"] = or_null(b.scaling_factor);
  j["line_rate_bytes_per_s"] = or_null(b.line_rate_bytes_per_s);
  j["utilisation_over_steps"] = or_null(b.utilisation_step);
  j["utilisation_while_communicating"] = or_null(b.utilisation_communicating);
  j["steps"] = list_of(b.steps, step_json, known);
  j["ranks"] = list_of(b.ranks, rank_json, known);
  j["bucket_plan"] = b.buckets ? buckets_json(*b.buckets) : Json(nullptr);
  j["clock_residual_s"] = in_seconds(b.clock_residual_ns);
  j["notes"] = b.notes;
  j["collectives"] = list_of(b.collectives, collective_json, known);
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace linerate::trace
