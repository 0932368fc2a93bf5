// Files of one embedded folder by their preset name: models/hardware/h200.json is "h200".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/embedded.h"

namespace bayplan {

/// Names below `folder` ("models/hardware/"), sorted.
std::vector<std::string> preset_names(std::string_view folder);

/// The file of preset `name`, or nullptr.
const EmbeddedFile* find_preset_file(std::string_view folder, std::string_view name);

}  // namespace bayplan
