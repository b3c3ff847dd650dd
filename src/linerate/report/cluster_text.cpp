// What a calibration found, for those who decide whether to trust it. It says how well the fit
// predicts a size that it did not see, and what probes measured. The numbers themselves are in the
// document.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/report/texts.hpp"

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
  return text_table(
      {"collective", ">ranks", "type", ">sizes", ">from .. to", ">mean", ">max", "switches"}, rows);
}

/// "5.1 GB/s after 20 us"; with a cost for each tensor, "after 20 us and 3 us a tensor". A codec
/// whose speed is not known takes its fixed time alone: "in 20 us".
std::string speed(double fixed_s, double tensor_s, double bytes_per_s) {
  std::vector<std::string> times;
  if (fixed_s != 0 || tensor_s <= 0) times.push_back(format_time(fixed_s));
  if (tensor_s > 0) times.push_back(fmt::format("{} a tensor", format_time(tensor_s)));
  const std::string first = join(times, " and ");
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
  if (c.contention && c.contention->message_delay_s > 0)
    text += fmt::format("a collective takes {} longer while ranks compute, however small it is\n",
                        format_time(c.contention->message_delay_s));
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

// algbw and busbw are those of nccl-tests: bytes by time, and that times a factor of the
// collective. An example: an all-reduce of 1 GB on 4 ranks in 100 ms has algbw 10 GB/s. Its busbw
// is 2 * 3/4 of that, 15 GB/s. It can be compared with the link's rate whatever the number of
// ranks.

// A barrier moves nothing and has no rate. A closed form has no interval: nothing was measured.
std::vector<std::string> row_of(const cost::CollectiveTime& t, Collective collective) {
  const auto bytes = static_cast<double>(t.size.value);
  const bool moves = bytes > 0 && t.time.seconds > 0;
  const double rate = moves ? bytes / t.time.seconds : 0;
  return {std::to_string(t.ranks),
          format_size(bytes),
          format_time(t.time.seconds),
          t.fitted ? time_range(t.time.low, t.time.high) : "n/a",
          moves ? format_rate(rate) : "-",
          moves ? format_rate(rate * bus_factor(collective, t.ranks)) : "-",
          t.time.extrapolated ? "extrapolated" : ""};
}

// One count of ranks stands in the heading, several in a column.
std::string table_of(const cost::CollectiveTimes& all) {
  std::vector<std::string> columns = {">ranks", ">size",  ">time", ">90 % interval",
                                      ">algbw", ">busbw", ""};
  std::vector<std::vector<std::string>> rows;
  for (const cost::CollectiveTime& t : all.times) rows.push_back(row_of(t, all.collective));
  const int ranks = all.times.front().ranks;
  if (std::ranges::any_of(all.times, [&](const auto& t) { return t.ranks != ranks; }))
    return fmt::format("{}\n{}", name_of(all.collective), text_table(columns, rows));
  columns.erase(columns.begin());
  for (std::vector<std::string>& row : rows) row.erase(row.begin());
  return fmt::format("{} on {} rank{}\n{}", name_of(all.collective), ranks, ranks == 1 ? "" : "s",
                     text_table(columns, rows));
}

// A chart of characters. All positions are dots: a character holds 2 x 4 of them, so 70 columns and
// 16 rows are 140 x 64 dots. Letters mark data points, and dots or letters the lines between them.

constexpr int kWidth = 72;   // characters, axis labels included
constexpr int kHeight = 16;  // rows of the drawing area

// The drawing area. A cell holds braille dots, or a letter that covers them.
class Canvas {
 public:
  explicit Canvas(int columns)
      : columns_(columns), dots_(to_index(columns * kHeight)), letters_(dots_.size(), 0) {}

  int dot_columns() const { return columns_ * 2; }
  int dot_rows() const { return kHeight * 4; }

  // Outside the area nothing is drawn.
  void dot(int x, int y) {
    if (x < 0 || y < 0 || x >= dot_columns() || y >= dot_rows()) return;
    // Unicode numbers the eight dots of a braille cell column by column, the fourth row last. An
    // example: the dots at the top left and at the bottom right are 0x01 + 0x80, which is the
    // character U+2881.
    constexpr unsigned char bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    dots_[cell(x, y)] |= bits[y % 4][x % 2];
  }
  void letter(int x, int y, char c) {
    if (x >= 0 && y >= 0 && x < dot_columns() && y < dot_rows()) letters_[cell(x, y)] = c;
  }
  std::string row(int r) const {
    std::string text;
    for (int c = 0; c < columns_; ++c) {
      const auto i = to_index(r * columns_ + c);
      if (dots_[i] && !letters_[i])  // U+2800 + bits, in UTF-8
        text += {static_cast<char>(0xE2), static_cast<char>(0xA0 | (dots_[i] >> 6)),
                 static_cast<char>(0x80 | (dots_[i] & 0x3F))};
      else
        text += letters_[i] ? letters_[i] : ' ';
    }
    return text.erase(text.find_last_not_of(' ') + 1);
  }

 private:
  std::size_t cell(int x, int y) const { return to_index(y / 4 * columns_ + x / 2); }
  int columns_;
  std::vector<unsigned char> dots_;
  std::vector<char> letters_;
};

// a to z, then A to Z; lines beyond the 52nd share a star.
char letter_of(std::size_t i) {
  return static_cast<char>(i < 26 ? 'a' + i : i < 52 ? 'A' + (i - 26) : '*');
}

std::string tick_label(double value) { return fmt::format("{:g}", value); }

// A line from each point to the next one that is defined; an absent value between them leaves a
// gap. Steps are half a dot on the longer axis, so that rounding skips none. Letters come last:
// they are on top of this series' own dots.
void draw_series(Canvas& canvas, const Series& series, const Scale& x, const Scale& y, char letter,
                 bool ascii) {
  const Point* before = nullptr;
  for (const Point& p : series.points) {
    if (p.y && before) {
      const double x0 = x(before->x), y0 = y(*before->y), x1 = x(p.x), y1 = y(*p.y);
      const int steps =
          std::max(1, static_cast<int>(std::max(std::abs(x1 - x0), std::abs(y1 - y0)) * 2));
      for (int i = 0; i <= steps; ++i) {
        const int dx = static_cast<int>(std::lround(x0 + (x1 - x0) * i / steps));
        const int dy = static_cast<int>(std::lround(y0 + (y1 - y0) * i / steps));
        ascii ? canvas.letter(dx, dy, letter) : canvas.dot(dx, dy);
      }
    }
    before = p.y ? &p : nullptr;
  }
  for (const Point& p : series.points)
    if (p.y)
      canvas.letter(static_cast<int>(std::lround(x(p.x))), static_cast<int>(std::lround(y(*p.y))),
                    letter);
}

// Labels centred below their ticks; one that would touch its neighbour is left out. Two dots are a
// character wide, so positions are halved. Labels at the ends are pushed inside.
std::string x_axis_labels(const std::vector<double>& ticks, const Scale& x, int indent,
                          int columns) {
  std::string line(to_index(indent + columns), ' ');
  int free_from = 0;
  for (const double tick : ticks) {
    const std::string label = tick_label(tick);
    const int size = static_cast<int>(label.size());
    int at = indent + static_cast<int>(std::lround(x(tick) / 2)) - size / 2;
    at = std::clamp(at, 0, std::max(0, indent + columns - size));
    if (at < free_from) continue;
    line.replace(to_index(at), label.size(), label);
    free_from = at + size + 2;
  }
  return line.erase(line.find_last_not_of(' ') + 1);
}

// Chart labels use subscripts that an ASCII terminal lacks. What else it lacks is left out.
std::string plain(std::string text, bool ascii) {
  if (!ascii) return text;
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"₁", "_1"}, {"ₙ", "_n"}})
    for (std::size_t at; (at = text.find(from)) != std::string::npos;)
      text.replace(at, from.size(), to);
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  return text;
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
                          {"message_s", cluster.contention->message_s},
                          {"message_delay_s", cluster.contention->message_delay_s}};
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

std::string to_text(const cost::CollectiveTimes& all) {
  std::string text = table_of(all);
  const auto any = [&all](auto holds) { return std::ranges::any_of(all.times, holds); };
  if (all.collective != Collective::barrier)
    text += "algbw: size / time; busbw: what each link carries, as nccl-tests states it.\n";
  if (any([](const cost::CollectiveTime& t) { return t.time.extrapolated; }))
    text += "extrapolated: outside the measured sizes or rank counts, by the collective's law.\n";
  if (any([](const cost::CollectiveTime& t) { return !t.fitted && t.ranks > 1; }))
    text +=
        "n/a: the links were given, not measured, so a formula prices them with an unknown error. "
        "linerate calibrate measures them.\n";
  for (const std::string& note : all.notes) text += "note: " + note + ".\n";
  return text;
}

std::string to_json(const cost::CollectiveTimes& all) {
  doc::Json list = doc::Json::array();
  for (const cost::CollectiveTime& t : all.times)
    list.push_back(
        {{"ranks", t.ranks},
         {"size_bytes", t.size.value},
         {"time_s", t.time.seconds},
         {"interval_s", t.fitted ? doc::Json{t.time.low, t.time.high} : doc::Json(nullptr)},
         {"extrapolated", t.time.extrapolated}});
  doc::Json json = {{"predictions", list}};
  if (!all.notes.empty()) json["notes"] = all.notes;
  return json.dump() + "\n";
}

// Marks of the y axis first, as the widest of them says how far the axis is from the left. A
// character is kept free at both ends: letters at the first and last point would touch the axis.
std::string terminal_curve(const LineChart& chart, bool ascii) {
  std::vector<Series> series;
  for (const Series& s : chart.series) series.push_back(drawable(s, chart.log_x));
  std::vector<double> xs, ys;
  for (const Series& s : series)
    for (const Point& p : s.points)
      if (p.y) xs.push_back(p.x), ys.push_back(*p.y);
  if (xs.empty()) return chart.name + ": no defined value to draw\n";
  for (const std::optional<double>& end : {chart.y_low, chart.y_high})
    if (end) ys.push_back(*end);
  const auto [x_low, x_high] = std::ranges::minmax(xs);
  auto [y_low, y_high] = std::ranges::minmax(ys);
  if (y_low == y_high) y_low -= 0.5, y_high += 0.5;  // its line is in the middle

  const std::vector<double> y_ticks = linear_ticks(y_low, y_high, 6);
  std::size_t label_width = 0;
  for (const double tick : y_ticks) label_width = std::max(label_width, tick_label(tick).size());
  const int indent = static_cast<int>(label_width) + 2;
  const int columns = kWidth - indent;
  Canvas canvas(columns);
  const double right = canvas.dot_columns() - 3;
  const Scale x{x_low, x_high, 2, right, chart.log_x};
  const Scale y{y_low, y_high, canvas.dot_rows() - 1.0, 0};
  for (std::size_t i = 0; i < series.size(); ++i)
    draw_series(canvas, series[i], x, y, letter_of(i), ascii);

  std::vector<std::string> left(kHeight);
  for (const double tick : y_ticks) left[to_index(std::lround(y(tick))) / 4] = tick_label(tick);
  std::string out = plain(chart.y_label, ascii) + "\n";
  for (int r = 0; r < kHeight; ++r) {
    const std::string& label = left[to_index(r)];
    const char* axis = ascii ? (label.empty() ? "|" : "+") : (label.empty() ? "│" : "┤");
    out += fmt::format("{:>{}} {}{}\n", label, label_width, axis, canvas.row(r));
  }
  const std::vector<double> x_ticks =
      (chart.log_x ? log_ticks : linear_ticks)(x_low, x_high, columns / 8);
  out += std::string(label_width + 1, ' ') + (ascii ? "+" : "└");
  for (int c = 0; c < columns; ++c) out += ascii ? "-" : "─";
  out += "\n" + x_axis_labels(x_ticks, x, indent, columns) + "\n";
  const std::string label = plain(chart.x_label, ascii);
  const int blanks = indent + std::max(0, (columns - static_cast<int>(label.size())) / 2);
  out += std::string(to_index(blanks), ' ') + label + "\n";
  for (std::size_t i = 0; i < series.size(); ++i)
    out += fmt::format("  {} {}\n", letter_of(i), plain(series[i].name, ascii));
  return out;
}

bool shows_unicode(const std::string& locale) {
  std::string name = lowered(locale);
  std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
  return name.find("utf8") != std::string::npos;
}

}  // namespace linerate::report
