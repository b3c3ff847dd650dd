// An Advice as a section of a page.
#pragma once

#include "linerate/doc/advice.hpp"
#include "linerate/report/page.hpp"

namespace linerate::report {

Section section_of(const doc::Advice& advice);

}  // namespace linerate::report
