#include "tools/bayplan/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace bayplan::cli {
namespace {

constexpr std::chrono::seconds kQuiet{2};
constexpr std::chrono::milliseconds kBetween{100};
constexpr std::chrono::seconds kBetweenLines{15};  // where there is no terminal to draw on
constexpr int kWidth = 30;

}  // namespace

ProgressBar::ProgressBar()
    : terminal_(::isatty(STDERR_FILENO) == 1), start_(Clock::now()), last_(start_) {}

ProgressBar::~ProgressBar() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::show(double fraction, const std::string& text) {
  const Clock::time_point now = Clock::now();
  if (!terminal_) {
    if (now - last_ < kBetweenLines) return;
    last_ = now;
    fmt::print(stderr, "{:3.0f} % {}\n", 100.0 * std::clamp(fraction, 0.0, 1.0), text);
    return;
  }
  if (now - start_ < kQuiet || now - last_ < kBetween) return;
  last_ = now;
  shown_ = true;
  const double f = std::clamp(fraction, 0.0, 1.0);
  const int filled = static_cast<int>(f * kWidth);
  fmt::print(stderr, "\r\033[K[{}{}] {:3.0f} % {}",
             std::string(static_cast<std::size_t>(filled), '='),
             std::string(static_cast<std::size_t>(kWidth - filled), ' '), 100.0 * f, text);
  std::fflush(stderr);
}

}  // namespace bayplan::cli
