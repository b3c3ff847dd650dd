#include "linerate/report/page.hpp"

#include <gmock/gmock.h>

#include <filesystem>

#include "compare/sample_evaluation.hpp"
#include "linerate/core/error.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/report/page_files.hpp"
#include "linerate/report/sections.hpp"
#include "linerate/report/texts.hpp"
#include "linerate/trace/load.hpp"
#include "support/message_of.hpp"

namespace linerate::report {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Not;
using testing::Optional;

doc::Advice advice() {
  doc::Advice a;
  a.workload = "net <b>", a.cluster = "lab", a.ranks = 4, a.bandwidth_bit_per_s = 1e10,
  a.current = a.best = "ddp";
  a.sentence = "Nothing to gain.";
  a.candidates.resize(2);
  doc::Candidate &used = a.candidates[0], &other = a.candidates[1];
  used.strategy = used.family = "ddp", used.reason = "In use.", used.memory_bytes = 1e6;
  used.step_s = used.target_s = {0.1, 0.09, 0.11};
  other.strategy = other.family = "ddp+codec(ratio=8)", other.reason = "?";
  other.memory_bytes = 2e6, other.trains = false, other.standing = doc::Standing::unranked;
  other.step_s = {0.05, 0.05, 0.05};
  a.turning_points = {{"bandwidth_bit_per_s", 1e9, 2e9, "bulk", "ddp"}};
  return a;
}

doc::Timeline timeline(const std::string& mode) {
  doc::Timeline t;
  t.mode = mode, t.workload = "net", t.strategy = "ddp", t.ranks = 1;
  t.names = {"fc"};
  t.events = {{doc::TaskKind::forward, doc::Resource::compute, 0, 0, 0, -1, -1, 0, 5'000'000, -1}};
  t.steps = {{0, 0, 0, 6'000'000, ""}};
  return t;
}

std::size_t count(const std::string& text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Escape, LeavesNoMarkupAndNoControlCharacter) {
  EXPECT_EQ(escape("<a href=\"x\" b='y'>&\n\x01"),
            "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;  ");
}

TEST(Page, IsOneFileThatFitsAPhone) {
  const std::string html =
      to_html({"title", {"a.json"}, "c", "1", {section_of({}, "empty"), section_of(advice())}});
  EXPECT_THAT(html, HasSubstr("name=\"viewport\" content=\"width=device-width"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
  for (const char* outside :
       {"http", "<link", "src=", "url(", "import", "fetch", "XMLHttp", "innerHTML"})
    EXPECT_THAT(html, Not(HasSubstr(outside)));
}

TEST(Page, NotesStandLastInEveryKindOfSection) {
  Inputs inputs;
  inputs.advice = {advice()};
  inputs.advice[0].notes = {"note 1 of advice", "note 2 of advice"};
  inputs.predictions = {{"", {}}};
  inputs.predictions[0].second.notes = {"note 3 of predictions"};
  inputs.timelines.push_back({"t.json", "t", timeline("predicted")});
  inputs.timelines[0].timeline.notes = {"note 4 of a timeline"};
  inputs.evaluations = {{{compare::sample_setup()}}};
  inputs.evaluations[0].setups[0].notes = {"note 5 of a setup"};
  const Page page = page_of(inputs, "", "");
  const std::string html = to_html(page);
  for (const char* note : {"note 1", "note 2", "note 3", "note 4", "note 5"}) {
    const std::size_t at = html.find(note);
    ASSERT_NE(at, std::string::npos) << note;
    const std::string after = html.substr(at, html.find("</section>", at) - at);
    EXPECT_THAT(after, Not(HasSubstr("<figure>"))) << note;
    EXPECT_THAT(after, Not(HasSubstr("<table>"))) << note;
  }
}

TEST(Page, ItsTextsCanBeChangedBeforeTheyArePrinted) {
  Inputs inputs;
  inputs.advice = {advice()};
  inputs.advice[0].sentence = inputs.advice[0].candidates[0].reason = "give --ranks";
  inputs.advice[0].notes = {"give --ranks"};
  inputs.advice[0].ceilings = {{"a", {1}, "give --ranks"}};
  Page page = page_of(inputs, "", "");
  for_each_text(page, [](std::string& text) {
    if (text == "give --ranks") text = "changed";
  });
  const std::string html = to_html(page);
  EXPECT_EQ(count(html, "give --ranks"), 0u);
  EXPECT_EQ(count(html, "changed"), 4u);
}

TEST(Page, HasItsOwnScriptAndTheDataOfItsFiguresAndNoOther) {
  const Section drawn = section_of(advice());
  const std::string html = to_html({"t", {}, "", "", {drawn}});
  EXPECT_THAT(html, HasSubstr("<script>" + std::string(kPageScript) + "</script>"));
  EXPECT_THAT(html,
              HasSubstr("<svg role=\"img\" aria-label=\"Strategies by predicted time to target"
                        "\"></svg>\n<script type=\"application/json\">" +
                        drawn.figures[0].drawing.json + "</script>"));
  EXPECT_EQ(count(html, "<script"), 2u);
  EXPECT_EQ(count(html, "</script"), 2u);
  EXPECT_EQ(count(std::string(kPageScript), "<script") + count(std::string(kPageScript), "</"), 0u);
}

TEST(Page, NoNameEndsAScriptElement) {
  const std::string hostile = "</script><script>alert(1)</script><!--\xff";
  doc::Advice a = advice();
  a.candidates[0].strategy = a.current = hostile;
  doc::Timeline t = timeline("predicted");
  t.names = {hostile}, t.workload = t.strategy = hostile;
  doc::Predictions p;
  p.predictions.resize(1);
  p.predictions[0].strategy = hostile;
  p.predictions[0].bandwidth_bit_per_s = 1e9, p.predictions[0].scaling_factor = 0.5;
  const std::string html =
      to_html({hostile,
               {hostile},
               hostile,
               hostile,
               {section_of(a), section_of(p, hostile), sections_of({{hostile, hostile, t}})[0]}});
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("<!--")));
  EXPECT_EQ(count(html, "<script"), 4u);  // advice, curve, timeline, and the page's own
  EXPECT_EQ(count(html, "</script"), 4u);
}

TEST(Page, WithoutAValueOrTheScriptItHasWords) {
  const Drawing nothing = drawing_of_rows("name", "Step", {});
  const std::string html =
      to_html({"t", {}, "", "", {{"s", {}, {{"f", "c", nothing}}, {}}, section_of(advice())}});
  for (const char* words : {"<p>No defined value to draw</p>", "<noscript>",
                            "<p>Nothing to gain.</p>", "100 ms (90.0 ms – 110 ms)",
                            "between 1 and 2 Gbit/s: bulk below, ddp above", "net &lt;b&gt;"})
    EXPECT_THAT(html, HasSubstr(words));
  EXPECT_EQ(count(html, "<svg role"), 1u);  // of the advice
}

TEST(Page, StatesSourcesCommandAndVersionEscaped) {
  const std::string html =
      to_html({"<i>", {"a.json", "<u>.json"}, "linerate report a.json > b", "1.2.3", {}});
  for (const char* words :
       {"<code>a.json</code>, <code>&lt;u&gt;.json</code>", "linerate 1.2.3",
        "<code>linerate report a.json &gt; b</code>", "<h1>&lt;i&gt;</h1>", "Nothing to report"})
    EXPECT_THAT(html, HasSubstr(words));
}

TEST(Inputs, WhatIsNotAReportDocumentIsNamed) {
  const std::pair<const char*, const char*> refused[] = {
      {R"({"traceEvents": []})", "x.json: expected a Timeline"},
      {R"({"document": "cluster", "schema": 1})", "kind \"cluster\""},
      {"[1", "x.json"},
      {"[]", "not an object"},
      {R"({"predictions": [{"strategy": "ddp"}]})", "/predictions/0"},
      {"step,loss\n5,0.5\n6\n", "x.json: line 3"},
      {"step,loss\n5,0.5\n6,\n", "found \"6,\""},
      {"step,loss\n5,0.5\nsix,0.5\n", "six,0.5"},
      {"step,loss\n5,0.5\n6,0.5,7\n", "6,0.5,7"}};
  Inputs inputs;
  for (const auto& [text, says] : refused)
    EXPECT_THAT(support::message_of<InputError>([&] { add_document(inputs, text, "x.json"); }),
                HasSubstr(says));
  EXPECT_TRUE(inputs.files.empty());  // nothing that failed is listed as a source
}

TEST(Timelines, PredictedAndMeasuredShareOneChartPredictedFirstAndTwoRunsDoNot) {
  const std::vector<Section> sections = sections_of(
      {{"m.json", "m.json", timeline("trained")}, {"p.json", "p.json", timeline("predicted")}});
  ASSERT_EQ(sections.size(), 1u);
  const std::string& json = sections[0].figures[0].drawing.json;
  ASSERT_NE(json.find("\"title\":\"predicted"), std::string::npos);
  EXPECT_LT(json.find("\"title\":\"predicted"), json.find("\"title\":\"trained"));
  EXPECT_EQ(sections_of({{"a", "a", timeline("trained")}, {"b", "b", timeline("trained")}}).size(),
            2u);
}

TEST(Timelines, APageOfTracesSaysWhatExplainSaysWithNotesLastAndNoFolders) {
  const std::vector<std::string> files = {"tests/trace/fixtures/late2.rank0.json.gz",
                                          "tests/trace/fixtures/late2.rank1.json.gz"};
  if (!std::filesystem::exists(files.front()))
    GTEST_SKIP() << "run from the project's root: " << files.front() << " is not there";
  const trace::Explanation e = trace::explain(trace::load_job({files.begin(), files.end()}));
  Inputs inputs;
  add_files(inputs, files);
  inputs.timelines.front().timeline.notes = {files.front() + ": a note"};
  const Page page = page_of(inputs, "linerate report " + files.front(), "1");
  ASSERT_EQ(page.sections.size(), 1u);
  const Section& section = page.sections.front();
  EXPECT_THAT(section.paragraphs,
              testing::ElementsAre(HasSubstr(trace::finding_text(e.verdict)),
                                   "Cause: " + trace::cause_texts(e.breakdown.path).front() + "."));
  EXPECT_EQ(section.table.value().rows, breakdown_table(e, "late2.rank0.json").rows);
  ASSERT_EQ(section.figures.size(), 2u);
  EXPECT_THAT(section.figures[1].drawing.json, HasSubstr("waiting for other ranks"));
  const std::string html = to_html(page);
  EXPECT_THAT(html, Not(HasSubstr("tests/trace")));
  EXPECT_GT(html.find("late2.rank0.json.gz: a note"), html.find("Median step"));
}

TEST(EvaluationSection, DrawsStepsBesideMarkedBaselines) {
  const doc::Json rows = doc::Json::parse(step_chart(compare::sample_setup()).json).at("rows");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["name"], "ddp (fp32)");
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(rows[i]["emphasised"], i < 3);
  EXPECT_EQ(rows[3]["name"], "ddp+topk(density=0.01)");
  EXPECT_EQ(rows[3]["value_s"], 0.9);
  EXPECT_EQ(rows[3]["high_s"], 2.0);
}

TEST(EvaluationSection, DrawsTheMeanOverSeedsWithTheirRange) {
  doc::Setup s = compare::sample_setup();
  const LineChart chart = accuracy_chart(s, false);
  ASSERT_EQ(chart.series.size(), 2u);
  ASSERT_EQ(chart.series[0].points.size(), 4u);
  const Point last = chart.series[0].points[3];  // 0.9 and 0.88 after 40 steps
  EXPECT_EQ(last.x, 40);
  EXPECT_THAT(last.y, Optional(DoubleNear(89, 1e-9)));
  EXPECT_THAT(last.low, Optional(DoubleNear(88, 1e-9)));
  s.trained[0].points[3].train_s = 6;  // the other seed: 4 s
  EXPECT_EQ(accuracy_chart(s, true).series[0].points[3].x, 5);
  s.trained[2].diverged = s.trained[3].diverged = "nan";
  EXPECT_EQ(accuracy_chart(s, false).series.size(), 1u);
}

TEST(EvaluationSection, ThePageOfAResultsFileHasTheCountTheChartsAndTheTables) {
  Inputs inputs;
  add_document(inputs, doc::to_json(doc::Evaluation{{compare::sample_setup()}}), "results.json");
  const std::string page = to_html(page_of(inputs, "linerate report", "1"));
  for (const char* words :
       {"1 of 1 setups gain over tuned fp32", "noise floor (A/A): 2.0 %", "Step time by strategy",
        "lenet 1x28x28 fashion-mnist, batch 32, 2 ranks, host", "Test accuracy over time",
        "<td>1: density</td>"})
    EXPECT_THAT(page, HasSubstr(words));
}

// ---- a Plan as a graph; tests/cli/plan.cli has the tables ----

// Two variants of three tasks and three edges, the first one reaching into the second.
doc::Plan plan_of(const std::string& gradient) {
  doc::Plan plan;
  plan.strategy = "ddp";
  plan.workload = "tiny";
  plan.ranks = 2;
  plan.gradient_names = {gradient};
  for (const char* name : {"first-step", "steady"}) {
    doc::TaskGraph& g = plan.variants.emplace_back();
    g.name = name;
    g.members = {0};
    g.payloads = {{.begin = 0, .end = 1, .elements = 1001, .padded = 1002}};
    const auto backward = g.add({.kind = doc::TaskKind::backward,
                                 .origin = doc::Origin::observed,
                                 .resource = doc::Resource::compute,
                                 .subject = doc::Subject::gradients,
                                 .operation = plan.operation({"autograd", {}}),
                                 .first = 0,
                                 .last = 0,
                                 .seconds = 0.25});
    const auto exchange = g.add({.kind = doc::TaskKind::all_reduce,
                                 .resource = doc::Resource::network,
                                 .subject = doc::Subject::payloads,
                                 .operation = plan.operation({"sum", {}}),
                                 .first = 0,
                                 .last = 0,
                                 .bytes = 4008},
                                backward);
    g.add({.kind = doc::TaskKind::update, .resource = doc::Resource::compute}, backward, exchange);
  }
  plan.variants[0].next_step = {{2, 0, 1}};
  plan.warm_up = {0};
  plan.cycle = {1};
  return plan;
}

TEST(PlanDot, HasNodesArrowsAndFramesOfTheLanesThatHaveTasks) {
  const std::string dot = to_dot(plan_of("w"));
  const std::pair<const char*, std::size_t> all[] = {{"t0 [label", 2},
                                                     {"t1 [label", 2},
                                                     {"t2 [label", 2},
                                                     {" -> ", 2 * 3 + 1},
                                                     {"v0t2 -> v1t0 [style=dashed", 1},
                                                     {"style=dashed", 1},
                                                     {"style=rounded", 2},  // autograd's
                                                     {"subgraph ", 2 * (1 + 2)},
                                                     {"label=\"compute\"", 2},
                                                     {"label=\"codec\"", 0}};
  for (const auto& [word, times] : all) EXPECT_EQ(count(dot, word), times) << word;
  EXPECT_EQ(count(dot, "{"), count(dot, "}"));
}

TEST(PlanDot, QuotesOddNames) {
  EXPECT_THAT(to_dot(plan_of("a \"b\"\\")),
              HasSubstr(R"dot([label="backward a \"b\"\\ (autograd)", style=rounded];)dot"));
  EXPECT_THAT(to_dot(plan_of("two\nlines")), HasSubstr("backward two lines"));
}

}  // namespace
}  // namespace linerate::report
