// Reads and writes whole files, or nothing.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace linerate {

/// Throws InputError naming the file and the system's reason.
std::string read_file(const std::filesystem::path& path);

/// Readers see the old file or the new one, whole, at any moment, kill -9 and loss of power
/// included: the content goes into an exclusive temporary next to `path`, which is synced and
/// renamed over it; then the folder is synced. The old file's mode is kept. A symbolic link stays
/// one: what it points to is replaced. Pipes, terminals and /dev/stdout are written straight into.
///
/// Throws InputError; then the old file is as it was, and no temporary is left. Those of writers
/// that were killed are removed by the next write of the same file; one whose writer lives, on
/// whatever host, is not touched (a writer holds a lock on its own).
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

/// Makes `folder` and those above it if they are missing, writes a file into it and removes it
/// again. Throws InputError naming the folder and the system's reason.
void make_and_try_folder(const std::filesystem::path& folder);

/// Fails now if write_file_atomically(path) would fail at the end of a long run: tries the folder
/// of `path` as above. Does nothing for a pipe or a terminal. Throws InputError.
void make_and_try_folder_of(const std::filesystem::path& path);

}  // namespace linerate
