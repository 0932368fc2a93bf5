// The grammar of --offload and of the plan field: none, or KIND[=R][@nvme] items separated by
// commas.
#pragma once

#include <string>
#include <string_view>

#include "planner/core/plan.h"
#include "planner/core/result.h"

namespace bayplan {

/// Errors: "usage" for what is no item, "unsupported" for kinds, ratios and tiers that cannot be
/// lowered yet. `where` goes into them.
Result<Offload> parse_offload(std::string_view text, const std::string& where);

/// The inverse: "none", "optimizer", "optimizer,activations" …
std::string offload_text(const Offload& offload);

}  // namespace bayplan
