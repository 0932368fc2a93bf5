#include "models/preset_names.h"

#include <algorithm>

namespace bayplan {
namespace {

constexpr std::string_view kSuffix = ".json";

/// "" for files outside the folder.
std::string_view name_in(std::string_view folder, const EmbeddedFile& file) {
  if (!file.path.starts_with(folder) || !file.path.ends_with(kSuffix)) return "";
  return file.path.substr(folder.size(), file.path.size() - folder.size() - kSuffix.size());
}

}  // namespace

std::vector<std::string> preset_names(std::string_view folder) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files()) {
    if (const std::string_view name = name_in(folder, file); !name.empty())
      names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

const EmbeddedFile* find_preset_file(std::string_view folder, std::string_view name) {
  if (name.empty()) return nullptr;
  for (const EmbeddedFile& file : embedded_files()) {
    if (name_in(folder, file) == name) return &file;
  }
  return nullptr;
}

}  // namespace bayplan
