#include "tools/bayplan/launch_mode.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

namespace bayplan::cli {
namespace {

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc{} || end != view.data() + view.size()) return std::nullopt;
  return value;
}

std::optional<int> first_number(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (const auto value = number_in(variable)) return value;
  }
  return std::nullopt;
}

bool started_by_mpi() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"}) {
    if (std::getenv(variable) != nullptr) return true;
  }
  return false;
}

}  // namespace

Result<LaunchMode> launch_mode(std::string_view text) {
  if (text == "local") return LaunchMode::kLocal;
  if (text == "mpi") {
    if (started_by_mpi()) return LaunchMode::kMpi;
    return Error{"not-launched", "--launch mpi needs an MPI launcher around it", "--launch",
                 "start it as: mpirun -np N bayplan run …"};
  }
  if (text != "auto") {
    return Error{"unknown-value", fmt::format("'{}' is no way to launch", text), "--launch",
                 "write auto, local or mpi"};
  }
  if (started_by_mpi()) return LaunchMode::kMpi;
  for (const char* variable : {"RANK", "SLURM_PROCID"}) {
    const bool torchrun = std::string_view(variable) == "RANK";
    if (std::getenv(variable) == nullptr || (torchrun && std::getenv("WORLD_SIZE") == nullptr))
      continue;
    return Error{"no-rendezvous",
                 fmt::format("the environment has {}, but CPU ranks meet over MPI only", variable),
                 "--launch",
                 "start it as: mpirun -np N bayplan run …, or write --launch local for threads in "
                 "one process"};
  }
  return LaunchMode::kLocal;
}

std::optional<int> mpi_world_size() { return first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}); }

bool is_speaking_process() {
  return first_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}).value_or(0) == 0;
}

}  // namespace bayplan::cli
