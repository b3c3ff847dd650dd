#include "linerate/trace/explain/explain_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"

namespace linerate::trace {
namespace {

constexpr std::size_t kMostRows = 12, kMostRanks = 32;
constexpr std::string_view kIndent = "  ";

using Rows = std::vector<std::vector<std::string>>;

std::string time_or(const std::optional<double>& s) { return s ? format_time(*s) : "n/a"; }
std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string percent_or(const std::optional<double>& share) {
  return share ? percent(*share) : "n/a";
}

void rest(std::string& out, std::size_t shown, std::size_t all, std::string_view what) {
  if (all > shown) out += fmt::format("  ... and {} more {} (--json has all)\n", all - shown, what);
}

void whole(std::string& out, const Breakdown& b) {
  const bool known = !b.communication_unknown;
  const auto shown = [known](double s) { return known ? format_time(s) : std::string("n/a"); };
  out += fmt::format(
      "{} of {} rank{}, {} step{}; {}\n\n", b.ranks.size(),
      b.world_size > 0 ? std::to_string(b.world_size) : "an unknown number of",
      b.world_size == 1 ? "" : "s", b.steps.size(), b.steps.size() == 1 ? "" : "s",
      b.cpu_device ? "the CPU is the device" : "device times are unions of its kernels");
  out += fmt::format("over the whole file{}\n", b.ranks.size() > 1 ? ", mean over ranks" : "");
  out += fmt::format("  compute busy           {:>10}\n",
                     b.times_unknown ? std::string("n/a") : format_time(b.whole.compute_s));
  out += fmt::format("  communication busy     {:>10}   {}\n", shown(b.whole.communication_s),
                     b.cpu_device ? "" : "includes waiting for other ranks: not network time");
  out += fmt::format("  overlap of the two     {:>10}\n", shown(b.whole.overlap_s));
  out += fmt::format("  exposed communication  {:>10}\n", shown(b.whole.exposed_s));
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
  Rows rows;
  for (std::size_t i = 0; i < std::min(kMostRows, b.steps.size()); ++i) {
    const StepRow& s = b.steps[i];
    rows.push_back({std::to_string(s.number), format_time(s.duration_s),
                    format_time(s.busy.compute_s), format_time(s.busy.communication_s),
                    format_time(s.busy.overlap_s), format_time(s.busy.exposed_s),
                    format_time(s.busy.idle_s)});
  }
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
    l.duration.push_back(c.duration_s);
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
    rows.push_back({std::string(name_of(op)), std::to_string(l.duration.size()),
                    bytes >= 0 ? format_size(static_cast<double>(bytes)) : "unknown",
                    ranks > 0 ? std::to_string(ranks) : "?", mid(l.duration), mid(l.transfer),
                    mid(l.skew), l.bus.empty() ? "n/a" : format_rate(median(l.bus))});
  }
  out += "medians of collectives that are alike\n";
  out += text_table({{"collective"},
                     {"times", true},
                     {"bytes", true},
                     {"ranks", true},
                     {"duration", true},
                     {"transfer", true},
                     {"skew", true},
                     {"busbw", true}},
                    rows, kIndent);
  rest(out, kMostRows, lines.size(), "kinds of collectives");
  out += "\n";
}

void ranks(std::string& out, const Breakdown& b) {
  if (b.ranks.size() < 2) return;
  Rows rows;
  for (std::size_t i = 0; i < std::min(kMostRanks, b.ranks.size()); ++i) {
    const RankRow& r = b.ranks[i];
    rows.push_back({std::to_string(r.rank), format_time(r.whole.compute_s),
                    format_time(r.whole.communication_s), format_time(r.whole.exposed_s),
                    fmt::format("{:+.1f} us", static_cast<double>(r.clock_offset_ns) * 1e-3),
                    std::to_string(r.times_last),
                    r.times_last > 0 ? format_time(r.delay_per_step_s) + "/step" : "-"});
  }
  out += text_table({{"rank", true},
                     {"compute", true},
                     {"comm.", true},
                     {"exposed", true},
                     {"clock", true},
                     {"times last", true},
                     {"delays others", true}},
                    rows, kIndent);
  rest(out, kMostRanks, b.ranks.size(), "ranks");
  out += "\n";
}

void buckets(std::string& out, const Breakdown& b) {
  if (!b.buckets) return;
  std::vector<std::string> sizes;
  for (std::size_t i = 0; i < std::min<std::size_t>(16, b.buckets->bytes.size()); ++i)
    sizes.push_back(std::to_string(b.buckets->bytes[i]));
  out += fmt::format("buckets of step {}: {}{} bytes\n  {}\n\n", b.buckets->step, join(sizes, ", "),
                     b.buckets->bytes.size() > 16 ? ", ..." : "", b.buckets->verdict);
}

void network(std::string& out, const Breakdown& b) {
  if (b.scaling_factor)
    out += fmt::format("scaling factor {:.4f} = T_1 / T_n = {} / {}\n", *b.scaling_factor,
                       time_or(b.one_rank_step_s), time_or(b.step_s));
  if (b.line_rate_bytes_per_s)
    out +=
        fmt::format("network at {}: {} of the line rate over the steps, {} while communicating\n",
                    format_bit_rate(*b.line_rate_bytes_per_s), percent_or(b.utilisation_step),
                    percent_or(b.utilisation_communicating));
  if (b.scaling_factor || b.line_rate_bytes_per_s) out += "\n";
}

void verdict(std::string& out, const Verdict& v) {
  out +=
      fmt::format("verdict: {}{}\n  {}\n", name_of(v.finding),
                  v.confidence ? fmt::format(" (confidence {:.2f})", *v.confidence) : "", v.reason);
  out += fmt::format("  thresholds: host idle > {}, exposed < {}\n",
                     percent(v.thresholds.host_idle), percent(v.thresholds.exposed));
  out += fmt::format(
      "  at most to gain, of the step: infinitely fast network {}, no late ranks {}, perfect "
      "overlap {}, no host gaps {}\n",
      percent_or(v.ceilings.infinitely_fast_network), percent_or(v.ceilings.no_stragglers),
      percent_or(v.ceilings.perfect_overlap), percent_or(v.ceilings.no_host_gaps));
}

}  // namespace

std::string explain_text(const Breakdown& b, const Verdict& v) {
  std::string out;
  whole(out, b);
  steps(out, b);
  collectives(out, b);
  ranks(out, b);
  buckets(out, b);
  network(out, b);
  verdict(out, v);
  for (std::size_t i = 0; i < std::min<std::size_t>(20, b.notes.size()); ++i)
    out += fmt::format("note: {}\n", b.notes[i]);
  rest(out, 20, b.notes.size(), "notes");
  return out;
}

}  // namespace linerate::trace
