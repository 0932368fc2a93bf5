// How a thread waits between polls of a library that only answers when asked: it yields at first
// and then sleeps, longer the longer nothing has happened. Not for waiting on our own threads.
#pragma once

#include <chrono>

namespace bayplan::exec {

class PollPause {
 public:
  using Clock = std::chrono::steady_clock;

  /// Something happened: count from now.
  void restart() {
    pauses_ = 0;
    since_ = Clock::now();
  }
  void pause();
  /// Pauses since the last restart.
  int pauses() const { return pauses_; }
  double waited_seconds() const {
    return std::chrono::duration<double>(Clock::now() - since_).count();
  }

 private:
  int pauses_ = 0;
  Clock::time_point since_ = Clock::now();
};

}  // namespace bayplan::exec
