// Whole small files in and out, with errors that name the file. Not for: training data or
// checkpoints (executor).
#pragma once

#include <string>
#include <string_view>

#include "planner/core/result.h"

namespace bayplan {

/// Largest file that read_text_file accepts; configurations are far below it.
constexpr std::int64_t kLargestTextFile = std::int64_t{256} << 20;

/// The file's bytes. Errors: "file-not-found", "not-a-file", "unreadable-file", "file-too-large".
Result<std::string> read_text_file(const std::string& path);

/// Writes through a temporary file beside `path` and renames, so that readers see the old content
/// or the new one, never half of it. Error: "unwritable-output".
Status write_text_file(const std::string& path, std::string_view text);

}  // namespace bayplan
