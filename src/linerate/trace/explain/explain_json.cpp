#include "linerate/trace/explain/explain_json.hpp"

#include "linerate/doc/json.hpp"

namespace linerate::trace {
namespace {

using doc::Json;
using doc::json_of;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json busy_json(const Busy& b, bool communication_known, bool times_known = true) {
  Json j;
  const auto known = [communication_known](double v) {
    return communication_known ? Json(v) : Json(nullptr);
  };
  j["window_s"] = b.window_s;
  j["compute_busy_s"] = times_known ? Json(b.compute_s) : Json(nullptr);
  j["communication_busy_s"] = known(b.communication_s);
  j["overlap_s"] = known(b.overlap_s);
  j["exposed_communication_s"] = known(b.exposed_s);
  j["idle_s"] = b.idle_s;
  return j;
}

Json collective_json(const CollectiveRow& c) {
  Json j;
  j["name"] = std::string(name_of(c.op));
  j["bytes"] = or_null(c.bytes);
  j["bytes_deduced"] = c.bytes_deduced;
  j["ranks"] = or_null(c.ranks);
  j["step"] = c.step >= 0 ? Json(c.step) : Json(nullptr);
  j["duration_s"] = c.duration_s;
  j["exposed_s"] = c.exposed_s;
  j["transfer_s"] = or_null(c.transfer_s);
  j["skew_s"] = or_null(c.skew_s);
  j["last_rank"] = or_null(c.last_rank);
  j["algbw_bytes_per_s"] = or_null(c.algbw_bytes_per_s);
  j["busbw_bytes_per_s"] = or_null(c.busbw_bytes_per_s);
  if (c.busbw_at_least_bytes_per_s) j["busbw_at_least_bytes_per_s"] = *c.busbw_at_least_bytes_per_s;
  return j;
}

Json rank_json(const RankRow& r, bool known) {
  Json j;
  j["rank"] = r.rank >= 0 ? Json(r.rank) : Json(nullptr);
  j["source"] = r.source;
  j["busy"] = busy_json(r.whole, known);
  j["clock_offset_s"] = static_cast<double>(r.clock_offset_ns) * 1e-9;
  j["times_last"] = r.times_last;
  j["delay_per_step_s"] = r.delay_per_step_s;
  return j;
}

Json verdict_json(const Verdict& v) {
  Json j;
  j["reason"] = v.reason;
  j["idle_share"] = v.idle_share;
  j["exposed_share"] = v.exposed_share;
  j["exposed_transfer_share"] = {v.transfer_share_low, v.transfer_share_high};
  j["exposed_wait_share"] = {v.wait_share_low, v.wait_share_high};
  j["threshold_host_idle"] = v.thresholds.host_idle;
  j["threshold_exposed"] = v.thresholds.exposed;
  Json c;
  c["infinitely_fast_network"] = json_of(v.ceilings.infinitely_fast_network);
  c["no_stragglers"] = json_of(v.ceilings.no_stragglers);
  c["perfect_overlap"] = json_of(v.ceilings.perfect_overlap);
  c["no_host_gaps"] = json_of(v.ceilings.no_host_gaps);
  j["gain_ceiling_share_of_step"] = c;
  return j;
}

}  // namespace

std::string explain_json(const Breakdown& b, const Verdict& v) {
  const bool known = !b.communication_unknown;
  Json j;
  j["steps_s"] = Json::array();
  for (const StepRow& s : b.steps) j["steps_s"].push_back(s.duration_s);
  // The fixed keys compare with other tools, which read stamps as doubles; "exact" has them from
  // the digits.
  const Json whole = busy_json(b.whole_as_doubles, known, !b.times_unknown);
  for (const auto& [key, value] : whole.items())
    if (key != "window_s" && key != "idle_s") j[key] = value;
  j["exact"] = busy_json(b.whole, known, !b.times_unknown);
  j["collective_bytes"] = or_null(b.collective_bytes);
  j["gradient_bytes"] = or_null(b.gradient_bytes);
  j["collective_bytes_deduced"] = or_null(b.collective_bytes_deduced);
  j["gradient_bytes_deduced"] = or_null(b.gradient_bytes_deduced);
  j["verdict"] = std::string(name_of(v.finding));
  j["confidence"] = json_of(v.confidence);
  j["why"] = verdict_json(v);
  j["ranks_of_job"] = b.world_size > 0 ? Json(b.world_size) : Json(nullptr);
  j["ranks_missing"] = b.ranks_missing;
  j["step_s"] = json_of(b.step_s);
  j["one_rank_step_s"] = json_of(b.one_rank_step_s);
  j["scaling_factor"] = json_of(b.scaling_factor);
  j["line_rate_bytes_per_s"] = json_of(b.line_rate_bytes_per_s);
  j["utilisation_over_steps"] = json_of(b.utilisation_step);
  j["utilisation_while_communicating"] = json_of(b.utilisation_communicating);
  j["steps"] = Json::array();
  for (const StepRow& s : b.steps) {
    Json row = busy_json(s.busy, known);
    row["number"] = s.number;
    row["duration_s"] = s.duration_s;
    j["steps"].push_back(row);
  }
  j["ranks"] = Json::array();
  for (const RankRow& r : b.ranks) j["ranks"].push_back(rank_json(r, known));
  if (b.buckets)
    j["bucket_plan"] = {{"step", b.buckets->step},
                        {"bytes", b.buckets->bytes},
                        {"matches_ddp", b.buckets->matches_rule},
                        {"says", b.buckets->verdict}};
  else
    j["bucket_plan"] = nullptr;
  j["clock_residual_s"] = static_cast<double>(b.clock_residual_ns) * 1e-9;
  j["notes"] = b.notes;
  j["collectives"] = Json::array();
  for (const CollectiveRow& c : b.collectives) j["collectives"].push_back(collective_json(c));
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace linerate::trace
