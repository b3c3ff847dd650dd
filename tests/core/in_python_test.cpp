// What the command says, in the words of Python.
#include "linerate/core/in_python.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "support/case_files.hpp"

namespace linerate {
namespace {

class InPython : public testing::TestWithParam<FileCase> {};
INSTANTIATE_TEST_SUITE_P(Texts, InPython, testing::ValuesIn(cases_in(CORE_CASES)),
                         [](const auto& test) { return test.param.name; });

// "COMMAND => PYTHON", or a text that stays. What is in Python's words does.
TEST_P(InPython, SaysItInPythonsWords) {
  std::istringstream lines(GetParam().parts.at(1).second);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t mark = line.find(" => ");
    const std::string python = mark == line.npos ? line : line.substr(mark + 4);
    EXPECT_EQ(in_python(line.substr(0, mark)), python);
    EXPECT_EQ(in_python(python), python);
  }
  EXPECT_EQ(in_python(""), "");
}

}  // namespace
}  // namespace linerate
