// Horovod timelines: rank 0 writes one for all ranks. Each tensor has a row ("pid") with nested
// intervals: a negotiation, then the operation with its activities. A tick in the negotiation says
// that one rank is ready.
//
// Example. Ticks of gradient A come at 1 ms from rank 0, at 3 ms from rank 1 and at 2 ms from rank
// 2. So the tensor waited for 2 ms, and rank 1 was last. NCCL_ALLREDUCE of A then lasts from 3.1 to
// 5.1 ms. The same activity of gradient B lasts from 3.101 to 5.101 ms. Both were fused into one
// buffer, and the writer stamped each member in turn. So A and B are one all-reduce, and its bytes
// are the sum.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <any>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/trace/importer/importer.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/collective_names.hpp"

namespace linerate::trace {
namespace {

namespace dom = simdjson::dom;

/// What one tensor (one pid) has open: intervals as a stack, ticks, and the transfer so far.
struct Tensor {
  struct Open {
    std::string name;
    std::int64_t start = 0;
  };
  std::vector<Open> stack;
  std::int64_t first_tick = INT64_MAX, last_tick = INT64_MIN;
  int last_rank = -1;
  Span transfer;  // the last {NCCL,MPI,GLOO,CCL}_* activity
  bool moved = false;
};

/// One tensor's part in an exchange.
struct Exchanged {
  Span span;
  CommOp op = CommOp::unknown;
  std::int64_t pid = 0, bytes = -1;
  std::int64_t first_tick = INT64_MAX, last_tick = INT64_MIN;
};

bool moves_data(std::string_view activity) {
  for (const std::string_view prefix : {"NCCL_", "MPI_", "GLOO_", "CCL_", "DDL_"})
    if (activity.starts_with(prefix)) return true;
  return false;
}

/// A line break within the name of an activity is the file's damage.
std::string without_blanks(std::string_view name) {
  std::string plain(name);
  std::erase(plain, ' ');
  return plain;
}

/// From "dtype" and "shape" of an operation's arguments; -1: unknown. A shape is text such as "[64,
/// 3, 7, 7]".
std::int64_t bytes_of(const dom::element& args) {
  std::string_view dtype, shape;
  if (args["dtype"].get(dtype) != simdjson::SUCCESS ||
      args["shape"].get(shape) != simdjson::SUCCESS)
    return -1;
  int element = -1;
  for (const auto& [name, bytes] :
       {std::pair{"64", 8}, {"32", 4}, {"16", 2}, {"int8", 1}, {"bool", 1}})
    if (element < 0 && dtype.find(name) != std::string_view::npos) element = bytes;
  if (dtype == "double") element = 8;
  if (dtype == "float") element = 4;
  std::int64_t product = 1, number = 0;
  bool digits = false;
  for (const char c : shape) {
    if (c >= '0' && c <= '9') {
      number = std::min<std::int64_t>(number * 10 + (c - '0'), std::int64_t{1} << 40);
      digits = true;
    } else if (digits) {
      if (number > 0 && product > (std::int64_t{1} << 50) / number) return -1;
      product *= number;
      number = 0, digits = false;
    }
  }
  return element < 0 ? -1 : product * element;
}

/// Follows the intervals of each tensor, and joins what was exchanged to collectives at the end.
class HorovodReader {
 public:
  explicit HorovodReader(const std::string& name) : name_(name) {}

  /// The events that follow are of the next run, whose stamps begin anew. If both runs say when
  /// they began, the clocks place it. Otherwise it is put right after the last event of the run
  /// before.
  void begin_run() {
    tensors_.clear();
    run_ns_ = 0, offset_ns_.reset();
  }

  void event(const dom::element& e) {
    std::string_view phase, label;
    if (e["ph"].get(phase) != simdjson::SUCCESS || phase.empty()) return;
    std::int64_t pid = 0;
    if (e["pid"].get(pid) != simdjson::SUCCESS) pid = 0;
    if (e["name"].get(label) != simdjson::SUCCESS) label = {};
    if (phase == "M") return metadata(e);
    auto ts = time_of(e);
    if (!ts) {
      ++refused_;
      return;
    }
    if (!offset_ns_)
      offset_ns_ = epoch_ns_ > 0 && run_ns_ > epoch_ns_ ? run_ns_ - epoch_ns_ : latest_ns_ - *ts;
    *ts += *offset_ns_;
    latest_ns_ = std::max(latest_ns_, *ts);
    Tensor& t = tensors_[pid];
    if (phase.front() == 'B' && t.stack.size() < 64)
      t.stack.push_back({without_blanks(label), *ts});
    if (phase.front() == 'X') tick(t, label, *ts);
    if (phase.front() == 'E') end(pid, t, e, *ts);
  }

  Job finish() {
    Job job;
    job.origin_ns = epoch_ns_;
    job.world_size = ranks_ > 0 ? ranks_ : -1;
    job.computation_unknown = true;
    RankActivity rank;
    rank.rank = 0;
    rank.source = name_;
    for (const std::vector<Exchanged>& batch : batches()) {
      Communication c{.span = batch.front().span,
                      .op = batch.front().op,
                      .group_size = ranks_ > 0 ? ranks_ : -1,
                      .bytes = 0};
      std::int64_t first = INT64_MAX, last = INT64_MIN;
      for (const Exchanged& x : batch) {
        c.span.end_ns = std::max(c.span.end_ns, x.span.end_ns);
        c.bytes =
            c.bytes < 0 || x.bytes < 0 ? -1 : std::min(c.bytes + x.bytes, std::int64_t{1} << 60);
        first = std::min(first, x.first_tick), last = std::max(last, x.last_tick);
      }
      rank.communications.push_back(c);
      if (last > first) waits_ += last - first, ++waited_;
    }
    add_note(job.notes, name_,
             "a Horovod timeline holds no computation and no steps, so overlap and step times are "
             "unknown");
    if (waited_ > 0)
      add_note(job.notes, name_,
               "tensors waited {:.3f} ms on average from the first to the last rank that was "
               "ready ({} exchanges){}",
               static_cast<double>(waits_) * 1e-6 / waited_, waited_, late_text());
    if (refused_ > 0)
      add_note(job.notes, name_, "{} events without a readable \"ts\" left out", refused_);
    if (rank.communications.empty())
      add_note(job.notes, name_, "the timeline holds no activity of NCCL, MPI, Gloo or CCL");
    job.ranks.push_back(std::move(rank));
    return job;
  }

 private:
  static std::optional<std::int64_t> time_of(const dom::element& e) {
    if (std::int64_t us = 0; e["ts"].get(us) == simdjson::SUCCESS)
      return us > -(INT64_MAX / 4000) && us < INT64_MAX / 4000 ? std::optional(us * 1000)
                                                               : std::nullopt;
    if (double us = 0; e["ts"].get(us) == simdjson::SUCCESS && us > -1e15 && us < 1e15)
      return static_cast<std::int64_t>(us * 1000);
    return std::nullopt;
  }

  void metadata(const dom::element& e) {
    std::int64_t epoch = 0;
    if (e["args"]["start_time_since_epoch_in_micros"].get(epoch) == simdjson::SUCCESS &&
        epoch > 0 && epoch < INT64_MAX / 4000) {
      run_ns_ = epoch * 1000;
      if (epoch_ns_ == 0 && latest_ns_ == 0) epoch_ns_ = run_ns_;
    }
  }

  void tick(Tensor& t, std::string_view label, std::int64_t ts) {
    const auto rank = parse_whole(label);
    if (!rank || *rank < 0 || *rank > (1 << 20) || t.stack.empty()) return;
    ranks_ = std::max(ranks_, static_cast<int>(*rank) + 1);
    t.first_tick = std::min(t.first_tick, ts);
    if (ts >= t.last_tick) t.last_tick = ts, t.last_rank = static_cast<int>(*rank);
  }

  /// Closes the innermost interval of a tensor. When the outermost one closes, the tensor's
  /// exchange is complete and becomes an Exchanged.
  void end(std::int64_t pid, Tensor& t, const dom::element& e, std::int64_t ts) {
    if (t.stack.empty()) return;  // the file began inside
    const Tensor::Open open = std::move(t.stack.back());
    t.stack.pop_back();
    if (open.name.starts_with("NEGOTIATE_")) return;
    if (moves_data(open.name)) {
      // A hierarchical all-reduce moves data in several activities.
      if (!t.moved) t.transfer = {open.start, open.start};
      t.transfer.end_ns = std::max(t.transfer.end_ns, ts);
      t.moved = true;
    }
    if (!t.stack.empty()) return;
    if (t.moved) {
      dom::element args;
      exchanged_.push_back(
          {.span = t.transfer,
           .op = op_of_collective_name(open.name == "ADASUM" ? "ALLREDUCE" : open.name),
           .pid = pid,
           .bytes = e["args"].get(args) == simdjson::SUCCESS ? bytes_of(args) : -1,
           .first_tick = t.first_tick,
           .last_tick = t.last_tick});
      if (t.last_rank >= 0) ++last_[t.last_rank];
    }
    t = Tensor{};
  }

  /// Exchanges that were fused, as batches. The writer stamps each member in turn, so their begins
  /// and ends lie at most 5 us from the member before. A tensor is in a batch once: its next
  /// exchange opens a new batch, however close it is.
  std::vector<std::vector<Exchanged>> batches() {
    constexpr std::int64_t kApart = 5'000;
    std::ranges::stable_sort(exchanged_, {}, start_of);
    std::vector<std::vector<Exchanged>> all;
    std::unordered_set<std::int64_t> members;
    for (const Exchanged& x : exchanged_) {
      const bool joins = !all.empty() && all.back().back().op == x.op &&
                         x.span.start_ns - all.back().back().span.start_ns <= kApart &&
                         std::abs(x.span.end_ns - all.back().back().span.end_ns) <= kApart &&
                         !members.contains(x.pid);
      if (!joins) all.emplace_back(), members.clear();
      all.back().push_back(x);
      members.insert(x.pid);
    }
    return all;
  }

  std::string late_text() const {
    const auto most = std::ranges::max_element(last_, {}, &std::pair<const int, int>::second);
    return most == last_.end() ? ""
                               : fmt::format("; rank {} was the last most often ({} tensors)",
                                             most->first, most->second);
  }

  const std::string& name_;
  std::unordered_map<std::int64_t, Tensor> tensors_;
  std::vector<Exchanged> exchanged_;
  std::map<int, int> last_;
  std::int64_t epoch_ns_ = 0;                  // when the first run began; 0: unknown
  std::int64_t run_ns_ = 0;                    // when the present one did
  std::optional<std::int64_t> offset_ns_ = 0;  // of its stamps; absent: the next one says
  std::int64_t latest_ns_ = 0, waits_ = 0;
  int ranks_ = 0, waited_ = 0;
  std::size_t refused_ = 0;
};

/// The list is mended where it was damaged: old files end in "}," without "]".
std::any read_horovod(PaddedText text, const std::string& name, const Progress&) {
  const Repairs repairs = repair_json(text);
  dom::parser parser;
  dom::array events;
  if (const auto e = parser.parse(text.data(), text.size(), false).get_array().get(events))
    throw InputError(name, fmt::format("expected the array of a Horovod timeline: {}",
                                       simdjson::error_message(e)));
  HorovodReader reader(name);
  std::size_t at = 0;
  for (const dom::element& e : events) {
    if (!e.is_object()) continue;
    if (std::ranges::find(repairs.begins_anew, at++) != repairs.begins_anew.end())
      reader.begin_run();
    reader.event(e);
  }
  Job job = reader.finish();
  if (repairs.any()) add_note(job.notes, name, "damaged JSON was repaired: {}", repairs.text());
  return job;
}

/// PyTorch's lists have complete events and categories; Horovod begins and ends.
bool is_horovod(const Head& head) {
  return head.form() == HeadForm::list &&
         (head.contains_any({"NEGOTIATE_", "start_time_since_epoch_in_micros"}) ||
          (head.has_phase('B') && !head.contains("\"cat\"")));
}

}  // namespace

std::vector<Importer> horovod_importers() {
  return {
      {.name = "Horovod timeline", .matches = is_horovod, .read = read_horovod, .join = only_job}};
}

}  // namespace linerate::trace
