// A Timeline as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.
#pragma once

#include <filesystem>
#include <string>

#include "linerate/doc/timeline.hpp"

namespace linerate::trace {

/// Ranks are processes, resources are tracks (threads) inside them, and the steps a track of their
/// own on top. Complete ("X") events carry bytes, group, parameters and step; a flow ("s" -> "f")
/// leads from the backward that made a collective's last gradient to the collective; counters are
/// "C" events. Times in microseconds with nanosecond digits, shifted so that the earliest is 0.
/// Events that overlap on a track without nesting (two collectives in flight) go to further tracks
/// of that resource, since the format draws such an overlap wrongly. Source: "Trace Event Format",
/// Google, 2016.
[[nodiscard]] std::string to_perfetto(const doc::Timeline& timeline);
/// Writes it as a file. Throws InputError.
void save_perfetto(const doc::Timeline& timeline, const std::filesystem::path& path);

}  // namespace linerate::trace
