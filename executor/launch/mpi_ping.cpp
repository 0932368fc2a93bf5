#include "executor/launch/mpi_ping.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "executor/comm/mpi_communicator.h"
#include "executor/launch/mpi_session.h"

extern char** environ;

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kPingVariable = "BAYPLAN_MPI_PING";
constexpr const char* kPingAssignment = "BAYPLAN_MPI_PING=1";
constexpr std::int64_t kSmall = 8;
constexpr std::int64_t kLarge = std::int64_t{4} << 20;
constexpr int kSmallRounds = 200;
constexpr int kLargeRounds = 20;

/// Seconds per one-way message; both ranks call it.
double one_way(Communicator& communicator, std::vector<std::byte>& buffer, std::int64_t bytes,
               int rounds) {
  const CallSite site{0, "ping", Purpose::kNone};
  const int peer = 1 - communicator.rank();
  const auto pass = [&](bool sends) {
    Message message;
    message.is_send = sends;
    message.peer = peer;
    message.data = buffer.data();
    message.bytes = bytes;
    communicator.exchange(site, std::span<const Message>(&message, 1));
  };
  communicator.barrier(site);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    pass(communicator.rank() == 0);
    pass(communicator.rank() == 1);
  }
  return std::chrono::duration<double>(Clock::now() - start).count() / (2.0 * rounds);
}

void play() {
  const auto world = start_mpi();
  if (!world || world->size != 2) std::_Exit(1);
  {
    const auto communicator = make_mpi_communicator(10.0);
    std::vector<std::byte> buffer(static_cast<std::size_t>(kLarge));
    one_way(*communicator, buffer, kSmall, 10);
    const double latency = one_way(*communicator, buffer, kSmall, kSmallRounds);
    one_way(*communicator, buffer, kLarge, 2);
    const double large = one_way(*communicator, buffer, kLarge, kLargeRounds);
    if (world->rank == 0) {
      std::printf("ping %.9e %.9e\n", latency,
                  static_cast<double>(kLarge) / std::max(large - latency, 1e-9));
      std::fflush(stdout);
    }
  }
  end_mpi();
  std::_Exit(0);
}

bool part_of_mpi_job() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

/// The environment of this process, one variable more for us and those that let Open MPI start two
/// processes anywhere.
std::vector<std::string> child_environment() {
  std::vector<std::string> variables;
  for (char** e = environ; *e != nullptr; ++e) variables.emplace_back(*e);
  for (const char* v : {kPingAssignment, "OMPI_ALLOW_RUN_AS_ROOT=1",
                        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1",
                        "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"}) {
    variables.emplace_back(v);
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& t : texts) out.push_back(t.data());
  out.push_back(nullptr);
  return out;
}

/// Standard output of the command, which is killed with all its children at the deadline.
std::string output_of(std::vector<std::string> command, double deadline_seconds) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> environment = child_environment();
  const std::vector<char*> arguments = pointers(command);
  const std::vector<char*> variables = pointers(environment);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, command[0].c_str(), &actions, &attributes,
                                    arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(pipe[1]);
  std::string text;
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(deadline_seconds));
  while (failed == 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd ready{pipe[0], POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0) break;
    std::array<char, 512> part{};
    const ssize_t n = ::read(pipe[0], part.data(), part.size());
    if (n <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(n));
  }
  ::close(pipe[0]);
  if (failed == 0) {
    if (Clock::now() >= end) ::kill(-child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
  }
  return text;
}

}  // namespace

std::optional<MpiPing> measure_mpi_ping(double deadline_seconds) {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed || self.filename() != "bayplan" || part_of_mpi_job()) return std::nullopt;
  const std::string text =
      output_of({"mpirun", "-np", "2", self.string(), "calibrate"}, deadline_seconds);
  MpiPing ping;
  const std::size_t at = text.find("ping ");
  if (at == std::string::npos) return std::nullopt;
  if (std::sscanf(text.c_str() + at, "ping %lf %lf", &ping.latency.value, &ping.bandwidth.value) !=
      2) {
    return std::nullopt;
  }
  if (!(ping.latency.value > 0.0) || !(ping.bandwidth.value > 0.0)) return std::nullopt;
  return ping;
}

void play_ping_if_asked() {
  if (std::getenv(kPingVariable) != nullptr && part_of_mpi_job()) play();
}

}  // namespace bayplan::exec
