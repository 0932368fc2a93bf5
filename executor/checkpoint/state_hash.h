// state_hash: xxh3-128 over all logical tensors, so that two runs can be compared by 32 digits,
// whatever their layouts.
#pragma once

#include <memory>
#include <string>

#include "executor/checkpoint/gather_state.h"

namespace bayplan::exec {

/// Feed tensors in name order. Per tensor the hash covers: name, a zero byte, dtype name, a zero
/// byte, rank (one byte), dims (int64 little-endian each), bytes.
class StateHash {
 public:
  StateHash();
  ~StateHash();
  StateHash(const StateHash&) = delete;
  StateHash& operator=(const StateHash&) = delete;
  void add(const LogicalTensor& tensor);
  /// 32 lower-case hexadecimal digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bayplan::exec
