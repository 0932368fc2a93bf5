#include "executor/checkpoint/state_hash.h"

#include <xxhash.h>

#include <string_view>

#include "planner/core/check.h"

namespace bayplan::exec {

struct StateHash::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    BAYPLAN_CHECK(xxh != nullptr, "no memory for a hash state");
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  void add(const void* data, std::size_t bytes) { XXH3_128bits_update(xxh, data, bytes); }
  void add_text(std::string_view text) {
    add(text.data(), text.size());
    const char zero = 0;
    add(&zero, 1);
  }
};

StateHash::StateHash() : state_(std::make_unique<State>()) {}
StateHash::~StateHash() = default;

void StateHash::add(const LogicalTensor& tensor) {
  state_->add_text(tensor.name);
  state_->add_text(dtype_name(tensor.dtype));
  const auto rank = static_cast<std::uint8_t>(tensor.shape.rank);
  state_->add(&rank, 1);
  state_->add(tensor.shape.dims.data(), rank * sizeof(std::int64_t));
  state_->add(tensor.bytes.data(), tensor.bytes.size());
}

std::string StateHash::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh));
  std::string out;
  for (const unsigned char byte : canonical.digest) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

}  // namespace bayplan::exec
