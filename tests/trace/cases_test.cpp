// Files as people have them, and jobs written down (cases/*.case); what the documents say that are
// made of them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/explain/program.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/job/periods.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "support/case_files.hpp"
#include "trace/chakra_text.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using doc::Json;
using testing::HasSubstr;

/// Ranks of each collective, in order, and null if some of its group are missing.
Json matched_of(const Job& job, const MatchResult& matched) {
  Json all = Json::array();
  for (const Matched& m : matched.collectives) {
    Json ranks = Json::array();
    for (const Member& member : m.members)
      ranks.push_back(job.ranks[static_cast<std::size_t>(member.rank)].rank);
    if (!m.complete) ranks.push_back(nullptr);
    all.push_back(ranks);
  }
  return all;
}

/// "linear 7x3, 40 rows", with groups if there are several; "conv2d" alone without a block.
std::vector<std::string> layers_of(const doc::Workload& w) {
  std::vector<std::string> all;
  for (const doc::Layer& l : w.layers) all.push_back(l.kind);
  for (const doc::Block& b : w.blocks) {
    const bool is_unit_wise = b.kind == doc::BlockKind::unit_wise;
    const std::string groups = b.groups > 1 ? fmt::format(" {} times", b.groups) : "";
    all.at(static_cast<std::size_t>(b.layer)) += fmt::format(
        " {}x{}{}, {} rows{}", b.a, b.g, groups, b.rows_g, is_unit_wise ? ", unit-wise" : "");
    EXPECT_EQ(b.rows_a, is_unit_wise ? 0 : b.rows_g);
  }
  return all;
}

/// Of its gradients, "10x6"; "60" without rows; "10x6 of 1" of the second model of a step.
std::string shapes_of(const doc::Workload& w) {
  std::vector<std::string> all;
  for (const doc::Gradient& g : w.gradients)
    all.push_back((g.rows ? fmt::format("{}x{}", *g.rows, g.elements / *g.rows)
                          : std::to_string(g.elements)) +
                  (g.turn > 0 ? fmt::format(" of {}", g.turn) : ""));
  return fmt::format("{}", fmt::join(all, " "));
}

/// "all-gather 1028 each, forward 300 us": to 50 us.
std::vector<std::string> others_of(const doc::Workload& w) {
  std::vector<std::string> all;
  for (const doc::OtherCollective& o : w.other_collectives)
    all.push_back(fmt::format("{} {}{}, {} {:g} us{}", name_of(o.collective), o.bytes,
                              o.per_rank ? " each" : "", name_of(o.place),
                              50 * std::round(o.at_s * 1e6 / 50),
                              o.every > 1 ? fmt::format(", every {}", o.every) : ""));
  return all;
}

std::string message_or(const auto& document) {
  try {
    return document();
  } catch (const Error& e) {
    return Json(e.what()).dump();
  }
}

/// All that is made of the files of one job, or of a log that holds a Workload.
Json documents_of(std::vector<InputFile> files) {
  Json all;
  const Importer& importer = *recognise(files.front().head()).importer;
  all["importer"] = importer.name;
  all["refused"] = Json::parse(message_or([&] {
    if (importer.read_workload != nullptr) {
      all["workload"] = Json::parse(doc::to_json(importer.read_workload(files.front(), {})));
      return std::string("null");
    }
    const Job job = read_job(files);
    const Breakdown b = break_down(job);
    const MatchResult matched = match_collectives(job);
    all["job"] = Json::parse(recording_of(job));
    all["origin_ns"] = job.origin_ns;
    all["notes"] = job.notes;
    all["explain"] = Json::parse(explain_json(b, judge(b)));
    Job with_time = job;
    find_one_rank_time(with_time, std::nullopt);  // as the command does
    const Explanation explained = explain(with_time);
    all["explained"] = Json::parse(explain_json(explained.breakdown, explained.verdict));
    all["text"] = explain_text(explained.breakdown, explained.verdict);
    all["matched"] = matched_of(job, matched);
    all["unmatched"] = matched.notes;
    all["sharding"] = job.sharding;
    all["turns"] = turns_of(job);
    all["workload"] = Json::parse(message_or([&] {
      const ImportedJob imported = import_job(job);
      all["said"] = imported.notes;
      all["layers"] = layers_of(imported.workload);
      all["shapes"] = shapes_of(imported.workload);
      all["others"] = others_of(imported.workload);
      return doc::to_json(imported.workload);
    }));
    return std::string("null");
  }));
  return all;
}

/// The texts of a list as one.
std::string text_of(const Json& value) {
  if (!value.is_structured()) return value.is_string() ? value.get<std::string>() : value.dump();
  std::string all;
  for (const Json& item : value) all += text_of(item) + "\n";
  return all;
}

/// "PATH = VALUE", "PATH near VALUE AT_MOST_OFF", "PATH above VALUE", "PATH below VALUE",
/// "PATH counts ITEMS", "PATH has TEXT" or "PATH lacks TEXT". What is not there is null.
void expect(const Json& documents, const std::string& line) {
  SCOPED_TRACE(line);
  std::istringstream words(line);
  std::string path, verb, value;
  words >> path >> verb;
  std::getline(words >> std::ws, value);
  const Json::json_pointer place(path);
  const Json found = documents.contains(place) ? documents.at(place) : Json();
  if (verb == "has") {
    EXPECT_THAT(text_of(found), HasSubstr(value));
  } else if (verb == "lacks") {
    EXPECT_THAT(text_of(found), testing::Not(HasSubstr(value)));
  } else if (verb == "counts") {
    EXPECT_EQ(found.size(), std::stoul(value));
  } else if (verb == "near") {
    EXPECT_NEAR(found.get<double>(), std::stod(value), std::stod(value.substr(value.find(' '))));
  } else if (verb == "above") {
    EXPECT_GT(found.get<double>(), std::stod(value));
  } else if (verb == "below") {
    EXPECT_LT(found.get<double>(), std::stod(value));
  } else if (const Json expected = Json::parse(value); expected.is_number() && found.is_number()) {
    EXPECT_NEAR(found.get<double>(), expected.get<double>(),
                1e-12 + 1e-9 * std::abs(expected.get<double>()));
  } else {
    EXPECT_EQ(found, expected);
  }
}

/// A step whose events stand in lines.
/// - Of the host: "step NUMBER AT US", "op NAME AT US [DIMS]", "function NAME AT US" of autograd,
///   "optimizer AT", "gradient ELEMENTS AT", "mark NAME AT US [FLOATS]", "sum ELEMENTS CALLED AT US
///   [TYPE]".
/// - Of a device: "kernel AT US NAME" and "nccl NAME OPERATION ELEMENTS AT US [TYPE [ARGUMENTS]]".
/// - Of a backward pass: "node NAME [OPERATOR DIMS]...", "linear ROWS OUT IN", "grad SHAPE [HOOK
///   DIMS]". They follow each other from 100 us on, or from where "at US" stands.
class WrittenStep {
 public:
  WrittenStep(double begin, int ranks) : begin_(begin), now_(begin + 100), ranks_(ranks) {}

  void add(const std::string& line) {
    std::istringstream in(line);
    const std::vector<std::string> w{std::istream_iterator<std::string>(in), {}};
    const auto number = [&](std::size_t i) { return std::stod(w.at(i)); };
    const auto time = [&](std::size_t i) { return begin_ + number(i); };
    const auto word = [&](std::size_t i) { return i < w.size() ? w[i] : ""; };
    if (w.at(0) == "op")
      run(w.at(1), time(2), number(3), word(4));
    else if (w[0] == "step")
      events.push_back(step(std::stoi(w.at(1)), time(2), number(3)));
    else if (w[0] == "function")
      run(kFunction + w.at(1), time(2), number(3), "");
    else if (w[0] == "optimizer")
      events.push_back(optimizer_step(time(1)));
    else if (w[0] == "gradient")
      events.push_back(w.at(1) == "-" ? gradient(time(2)) : gradient(std::stol(w[1]), time(2)));
    else if (w[0] == "mark")
      events.push_back(host_event("user_annotation", w.at(1), time(2), number(3),
                                  word(4).empty() ? "" : floats(std::stol(word(4))),
                                  word(4).empty() ? 1 : 50));
    else if (w[0] == "kernel")
      events.push_back(
          kernel(line.substr(line.find(w.at(3), line.find(w[2]))), time(1), number(2)));
    else if (w[0] == "nccl")
      events.push_back(kernel(
          w.at(1), time(4), number(5),
          collective(w[2], std::stol(w[3]), ranks_, word(7), word(6).empty() ? "Float" : word(6)),
          20));
    else if (w[0] == "sum")
      events.push_back(gloo_all_reduce(std::stol(w.at(1)), time(2), time(3), number(4),
                                       word(5).empty() ? "float" : word(5)));
    else if (w[0] == "at")
      now_ = time(1);
    else if (w[0] == "node")
      node(w.at(1), {w.begin() + 2, w.end()});
    else if (w[0] == "linear")
      node("Addmm", {"aten::mm", fmt::format("[{0},{1}],[{1},{2}]", w.at(1), w.at(2), w.at(3)),
                     "aten::mm", fmt::format("[{1},{0}],[{0},{2}]", w.at(1), w.at(2), w.at(3))});
    else if (w[0] == "grad")
      complete(w.at(1), word(2), word(3));
    else
      throw std::runtime_error("no event: " + line);
  }

  Events events;

 private:
  static inline const std::string kFunction = "autograd::engine::evaluate_function: ";

  void run(const std::string& name, double at, double us, const std::string& dims) {
    events.push_back(host_event(
        "cpu_op", name, at, us,
        dims.empty() ? ""
                     : fmt::format(R"("Input Dims":[{}],"Input type":["float","float"])", dims)));
  }
  void node(const std::string& name, const std::vector<std::string>& operators) {
    run(kFunction + name + "Backward0", now_, static_cast<double>(operators.size()) + 2, "");
    for (std::size_t i = 0; i + 1 < operators.size(); i += 2)
      run(operators[i], now_ += 2, 1, operators[i + 1]);
    now_ += 2;
  }
  /// A gradient, with a hook behind it that runs this operator. "_" is a line break of its shape.
  void complete(std::string shape, const std::string& hook, const std::string& dims) {
    std::ranges::replace(shape, '_', '\n');
    run(kFunction + "torch::autograd::AccumulateGrad", now_, 6, "");
    events.push_back(
        host_event("cpu_op", "torch::autograd::AccumulateGrad", now_ + 1, 1, floats(shape)));
    if (!hook.empty()) run(hook, now_ + 4, 1, dims);
    now_ += 7;
  }

  double begin_, now_;
  int ranks_;
};

/// Takes "r0,1: " and "2: " off a line; false: it is of other ranks or steps.
bool is_of(std::string& line, int rank, int step) {
  for (std::size_t end = 0; (end = line.find(": ")) != line.npos; line.erase(0, end + 2)) {
    const bool of_ranks = line[0] == 'r';
    const std::string all = "," + line.substr(of_ranks ? 1 : 0, end - (of_ranks ? 1 : 0)) + ",";
    if (all.find(fmt::format(",{},", of_ranks ? rank : step)) == all.npos) return false;
  }
  return true;
}

/// Files of all ranks. "job BACKEND RANKS STEPS US,US...": steps, in turn so long, which have each
/// line's events.
std::vector<InputFile> written_job(const std::string& title, const std::string& lines) {
  std::istringstream in(title);
  std::string job, backend;
  int ranks = 0, steps = 0;
  in >> job >> backend >> ranks >> steps;
  std::vector<double> us;
  for (std::string one; std::getline(in, one, ',');) us.push_back(std::stod(one));
  std::vector<InputFile> files;
  for (int r = 0; r < ranks; ++r) {
    Events events;
    double begin = 0;
    for (int s = 0; s < steps; ++s) {
      const double length = us.at(static_cast<std::size_t>(s) % us.size());
      events.push_back(step(s, begin, length));
      WrittenStep written(begin, ranks);
      std::istringstream all(lines);
      for (std::string line; std::getline(all, line);)
        if (is_of(line, r, s)) written.add(line);
      append(events, written.events);
      begin += length;
    }
    files.push_back(
        InputFile::from_memory(trace_of(r, ranks, events, backend), fmt::format("rank{}.json", r)));
  }
  return files;
}

/// The events of one rank. "trace FILE BACKEND RANK RANKS": times count from 0, over all steps.
InputFile written_trace(const std::string& title, const std::string& lines) {
  std::istringstream in(title);
  std::string trace, file, backend;
  int rank = 0, ranks = 0;
  in >> trace >> file >> backend >> rank >> ranks;
  WrittenStep written(0, ranks);
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) written.add(line);
  return InputFile::from_memory(trace_of(rank, ranks, written.events, backend), file);
}

/// Device collectives of a Chakra trace: "TYPE BYTES AT US".
std::string written_chakra(const std::string& lines) {
  std::string text = chakra::head();
  std::istringstream in(lines);
  for (std::uint64_t type, bytes, at, us; in >> type >> bytes >> at >> us;)
    text += chakra::collective_node(type, bytes, at, us);
  return text;
}

class TraceCases : public testing::TestWithParam<FileCase> {};
INSTANTIATE_TEST_SUITE_P(OfFiles, TraceCases, testing::ValuesIn(cases_in(TRACE_CASES)),
                         [](const auto& test) { return test.param.name; });

// "open PATTERN": files of the tree or of ../shared, without which the case is skipped.
TEST_P(TraceCases, SayWhatIsExpected) {
  std::vector<InputFile> files;
  for (const auto& [title, text] : GetParam().parts) {
    const std::string kind = title.substr(0, title.find(' '));
    const std::string rest = title.substr(std::min(title.size(), kind.size() + 1));
    if (kind == "file") files.push_back(InputFile::from_memory(text, rest));
    if (kind == "chakra") files.push_back(InputFile::from_memory(written_chakra(text), rest));
    if (kind == "trace") files.push_back(written_trace(title, text));
    if (kind == "job") files = written_job(title, text);
    if (kind != "open") continue;
    if (rest.starts_with("../shared") &&
        !std::filesystem::exists(std::filesystem::path(rest).parent_path()))
      GTEST_SKIP() << rest << " is not there";
    const auto found = input_files({rest}).files;
    for (const auto& path : found) files.push_back(InputFile::open(path));
  }
  const Json documents = documents_of(std::move(files));
  std::istringstream expected(GetParam().part("expect"));
  for (std::string line; std::getline(expected, line);)
    if (!line.empty()) expect(documents, line);
}

}  // namespace
}  // namespace linerate::trace
