// A Timeline as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.
#pragma once

#include <filesystem>
#include <string>

#include "linerate/doc/timeline.hpp"

namespace linerate::trace {

/// Ranks are processes, resources are tracks (threads) inside them, and steps are a track of their
/// own on top. Complete ("X") events carry bytes, group, parameters and step. A flow ("s" -> "f")
/// leads to a collective from the backward event that made its last gradient. Counters are "C"
/// events. Times are microseconds with nanosecond digits, shifted so that the earliest is 0.
///
/// Events may overlap without nesting, such as two collectives in flight. The format draws that
/// wrongly, so they go to further tracks of the resource. Source: "Trace Event Format", Google,
/// 2016. Throws InputError if the Timeline is not valid.
[[nodiscard]] std::string to_perfetto(const doc::Timeline& timeline);
/// Writes it as a file. Throws InputError.
void save_perfetto(const doc::Timeline& timeline, const std::filesystem::path& path);

}  // namespace linerate::trace
