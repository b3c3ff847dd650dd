// Whole files in, whole files out or nothing.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace linerate {

/// Throws InputError naming the file and the system's reason.
std::string read_file(const std::filesystem::path& path);
/// Writes to a sibling temporary, syncs it and renames it over `path`: readers see the old file or
/// the new one, whole, at any moment, kill -9 included. Throws InputError.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace linerate
