// linerate list strategies|compressors|cost-models|models|networks: the registries as JSON.
#pragma once

#include <string>

namespace linerate::verbs {

/// {"strategies": [{"name", "kind", "line", "source", "plans_by", ...}]}: exchanges, then what may
/// come after '+'.
std::string strategies_json();
/// {"compressors": [{"name", "line", "source", "summable", "error_feedback", "unbiased"}]}
std::string compressors_json();
/// {"cost_models": [{"name", "line", "source"}]}
std::string cost_models_json();
/// {"models": [{"name", "line", "source"}]}
std::string models_json();
/// {"networks": [{"name", "where", "law", "efficiency", "start_up_s", ..., "sources"}]}
std::string networks_json();

}  // namespace linerate::verbs
