// linerate's own documents among the files given.
#pragma once

#include "linerate/trace/importer/head.hpp"

namespace linerate::trace {

/// A Timeline or another document of linerate's.
bool is_document(const Head& head);

}  // namespace linerate::trace
