// The JSON of `explain --json`, key by key (docs/explain.md, "Keys"). Unknown values are null and
// never 0: a reader that sums a column must notice what is missing.
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

/// Which times are known; the others are null.
struct Known {
  bool times = true, computation = true, communication = true;
  explicit Known(const Breakdown& b)
      : times(!b.times_unknown),
        computation(!b.computation_unknown),
        communication(!b.communication_unknown && b.has_device) {}
};

Json busy_json(const Busy& b, const Known& known) {
  Json j;
  const auto value = [](bool is_known, double v) { return is_known ? Json(v) : Json(nullptr); };
  const bool both = known.communication && known.computation;
  j["window_s"] = value(known.times, b.window_s);
  j["compute_busy_s"] = value(known.computation, b.compute_s);
  j["communication_busy_s"] = value(known.communication, b.communication_s);
  j["overlap_s"] = value(both, b.overlap_s);
  j["exposed_communication_s"] = value(both, b.exposed_s);
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

Json shared_json(const std::vector<SharedGain>& shared) {
  Json all = Json::array();
  for (const SharedGain& g : shared)
    all.push_back({{"remedies", {std::string(key_of(g.one)), std::string(key_of(g.other))}},
                   {"share_of_step", g.share}});
  return all;
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
  j["shared_gains"] = shared_json(b.path.shared);
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

Json hook_json(const HookCost& h) {
  return {{"dense_bytes", h.dense_bytes},
          {"sent_bytes", h.sent_bytes},
          {"transfer_s", h.transfer_s},
          {"dense_transfer_s", h.dense_transfer_s},
          {"device_s", h.work_s},
          {"host_s", h.host_s},
          {"lost_overlap_s", h.lost_overlap_s},
          {"step_s", h.step_s},
          {"step_without_s", h.without_s},
          {"step_with_quick_host_s", h.with_quick_host_s}};
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
  j["hook"] = b.path.hook ? hook_json(*b.path.hook) : Json(nullptr);
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
