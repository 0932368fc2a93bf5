#include "executor/trace/signal_status.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

namespace bayplan::exec {
namespace {

std::atomic<const SignalStatus*> current{nullptr};

void on_signal(int signal) {
  write_termination_report();
  // The handler was reset on entry (SA_RESETHAND): this ends the process by the same signal.
  ::raise(signal);
}

}  // namespace

SignalStatus::SignalStatus(const Program& program, int rank, const RankStatus& status,
                           const Communicator& communicator)
    : program_(program), rank_(rank), status_(status), communicator_(communicator) {
  current.store(this);
}

SignalStatus::~SignalStatus() { current.store(nullptr); }

void write_termination_report() noexcept {
  const SignalStatus* const status = current.load();
  if (status == nullptr) return;
  constexpr std::string_view kStart = "bayplan: told to stop: ";
  std::array<char, 512> line{};
  std::size_t size = 0;
  for (const char c : kStart) line[size++] = c;
  size += write_status(status->program_, status->rank_, status->status_, status->communicator_,
                       line.data() + size, line.size() - size);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), size);
}

void install_termination_report() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGTERM, SIGINT}) ::sigaction(signal, &action, nullptr);
}

}  // namespace bayplan::exec
