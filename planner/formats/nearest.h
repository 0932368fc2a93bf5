// The known name that is closest to what was typed, for error hints. Not for: deciding anything.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace bayplan {

/// The candidate with the smallest edit distance (insertions, deletions, replacements and swaps of
/// neighbours, letter case ignored); a candidate that starts with `name` or contains it counts as
/// closer. The first of equals; "" without candidates.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace bayplan
