#include "executor/device_null.h"

namespace bayplan::exec {

DeviceFactory null_devices() {
  return [](int) { return std::make_unique<NullDevice>(); };
}

}  // namespace bayplan::exec
