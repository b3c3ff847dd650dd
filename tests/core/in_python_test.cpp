// What the command says, in the words of Python.
#include "linerate/core/in_python.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace linerate {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

void expect(const Pairs& pairs) {
  for (const auto& [command, python] : pairs) {
    EXPECT_EQ(in_python(command), python);
    EXPECT_EQ(in_python(python), python) << "what is in Python's words stays";
  }
}

TEST(InPython, OptionsAreKeywordsOrMethods) {
  expect({{"--step-time: expected more than 0 s", "step_time=: expected more than 0 s"},
          {"give --bandwidth (and --latency), or", "give bandwidth= (and latency=), or"},
          {"`--line-rate` says it", "`line_rate=` says it"},
          {"--from, --cluster: leave one out", "from_=, cluster=: leave one out"},
          {"... and 3 more (--json lists all)", "... and 3 more (to_dict() lists all)"},
          {"none better (--all lists them)", "none better (to_text(all=True) lists them)"}});
}

TEST(InPython, ValuesFollowTheirKeyword) {
  expect(
      {{"give --ranks N.", "give ranks=N."},
       {"--preset agarwal2021: the paper", "preset=\"agarwal2021\": the paper"},
       {"or as --strategy ddp+topk(density=0.01).", "or as strategy=\"ddp+topk(density=0.01)\"."},
       {"--steps-to-target \"topk=1.1\" says", "steps_to_target=\"topk=1.1\" says"},
       {"-c: expected a Cluster, or --bandwidth, found",
        "cluster=: expected a Cluster, or bandwidth=, found"},
       {"give -c cluster.json or", "give cluster=\"cluster.json\" or"},
       {"give --ranks TEXT: Rank counts", "give ranks=TEXT: Rank counts"},
       {"of the zoo (-w zoo:resnet50), or", "of the zoo (workload=\"zoo:resnet50\"), or"},
       {"-w zoo:lenet: a model", "workload=\"zoo:lenet\": a model"}});
}

TEST(InPython, VerbsAreFunctions) {
  expect({{"run linerate calibrate --codecs \"topk\" and",
           "run linerate.calibrate(codecs=\"topk\") and"},
          {"(linerate calibrate --codecs, or", "(linerate.calibrate(codecs=...), or"},
          {"calibrate --codecs measures it", "linerate.calibrate(codecs=...) measures it"},
          {"write linerate import a/b.txt -o w.json to",
           "write linerate.import_workload(\"a/b.txt\").save(\"w.json\") to"},
          {"linerate whatif --help says", "help(linerate.whatif) says"},
          {"linerate whatif all-gather --help says", "help(linerate.whatif_collective) says"},
          {"output of \"whatif --json\", of", "output of \"Predictions.save()\", of"},
          {"(linerate list compressors)", "(linerate.compressors())"},
          {"linerate explain says where", "linerate.explain() says where"}});
}

TEST(InPython, OtherProgramsAndVerbsOfTheCommandAloneStay) {
  for (const char* text :
       {"srun --mpi=list shows", "mpirun -n 4 --oversubscribe",
        "linerate-torch calibrate --device cuda", "linerate evaluate --label --ranks 4",
        "leave out --real codec", "iconv -f UTF-16 -t UTF-8", "linerate train refuses it",
        "no option", "", "--", "a--ranks", "one of -s, 0 and +s", "from linerate import torch"})
    EXPECT_EQ(in_python(text), text);
}

}  // namespace
}  // namespace linerate
