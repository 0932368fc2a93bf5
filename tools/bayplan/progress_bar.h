// A progress bar on stderr, for anything that takes over two seconds while stderr is a terminal.
// Prints nothing otherwise.
#pragma once

#include <chrono>
#include <string>

namespace bayplan::cli {

class ProgressBar {
 public:
  ProgressBar();
  /// Removes the bar's line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `fraction` done in [0, 1]; `text` is short.
  void show(double fraction, const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_ = false;
  bool shown_ = false;
  Clock::time_point start_;
  Clock::time_point last_;
};

}  // namespace bayplan::cli
