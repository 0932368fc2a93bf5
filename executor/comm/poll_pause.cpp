#include "executor/comm/poll_pause.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <thread>

namespace bayplan::exec {
namespace {

/// Polls that only yield, before polls that sleep: a partner is usually there or far away.
constexpr int kYields = 40;
/// Sleeps are a fraction of the time waited so far, within bounds: a late partner costs little
/// more time than it took, and waiting ranks leave the cores to those that compute.
constexpr int kSleepFraction = 8;
constexpr PollPause::Clock::duration kShortestSleep = std::chrono::microseconds(30);
constexpr PollPause::Clock::duration kLongestSleep = std::chrono::microseconds(500);

}  // namespace

void PollPause::pause() {
  if (pauses_++ < kYields) {
    ::sched_yield();
    return;
  }
  // Linux would otherwise round short sleeps up by 50 us.
  if (pauses_ == kYields + 1) ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  const Clock::duration waited = Clock::now() - since_;
  std::this_thread::sleep_for(std::clamp(waited / kSleepFraction, kShortestSleep, kLongestSleep));
}

}  // namespace bayplan::exec
