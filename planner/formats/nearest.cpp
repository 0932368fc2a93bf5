#include "planner/formats/nearest.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace bayplan {
namespace {

// Longer texts are no names; cutting them bounds the work on hostile input.
constexpr std::size_t kLongestName = 80;

std::string lower_case(std::string_view text) {
  std::string out(text.substr(0, kLongestName));
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

int edit_distance(const std::string& a, const std::string& b) {
  const std::size_t columns = b.size() + 1;
  std::vector<int> two_above(columns), above(columns), row(columns);
  for (std::size_t j = 0; j < columns; ++j) above[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j < columns; ++j) {
      const int replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_above[j - 2] + 1);
      }
    }
    std::swap(two_above, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  const std::string typed = lower_case(name);
  std::string best;
  int best_score = 0;
  for (const std::string& candidate : candidates) {
    const std::string known = lower_case(candidate);
    // Doubled, so that containing the typed text can rank between two distances.
    int score = 2 * edit_distance(typed, known);
    if (typed.size() >= 3) {
      if (known.starts_with(typed)) {
        score = std::min(score, 1);
      } else if (known.find(typed) != std::string::npos) {
        score = std::min(score, 3);
      }
    }
    if (best.empty() || score < best_score) {
      best = candidate;
      best_score = score;
    }
  }
  return best;
}

}  // namespace bayplan
