#include "tools/bayplan/executor_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

namespace bayplan::cli {
namespace {

constexpr const char* kLibrary = "libbayplan_executor.so";
constexpr const char* kHint = "build it with tools/build (not the planner-only preset)";

}  // namespace

Result<const exec::ExecutorEntry*> load_executor() {
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed)
    return Error{"no-executor", "cannot find the folder of this program", "/proc/self/exe", kHint};
  const std::filesystem::path folder = program.parent_path();
  std::string first_path, problem;
  for (const std::filesystem::path& path : {folder / kLibrary, folder / ".." / "lib" / kLibrary}) {
    if (first_path.empty()) first_path = path.string();
    if (!std::filesystem::exists(path, failed)) continue;
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* why = ::dlerror();
      problem = why != nullptr ? why : "unknown reason";
      continue;
    }
    using Door = const exec::ExecutorEntry* (*)();
    const auto door = reinterpret_cast<Door>(::dlsym(library, "bayplan_executor_entry"));
    const exec::ExecutorEntry* entry = door != nullptr ? door() : nullptr;
    if (entry == nullptr || entry->abi != exec::ExecutorEntry::kAbi) {
      return Error{"executor-version", "the library belongs to another version of bayplan",
                   path.string(), kHint};
    }
    return entry;
  }
  if (!problem.empty()) {
    return Error{"no-executor", fmt::format("the executor cannot be loaded: {}", problem),
                 first_path, "run tools/setup and tools/build again"};
  }
  return Error{"no-executor", "this build has no executor", first_path, kHint};
}

}  // namespace bayplan::cli
