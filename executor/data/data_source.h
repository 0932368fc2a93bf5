// DataSource: samples by number. Sample i is `seq` tokens and the `seq` tokens that follow each,
// the same on every rank and for every layout. Step k consumes samples [kB, (k+1)B).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "planner/core/result.h"

namespace bayplan::exec {

class DataSource {
 public:
  virtual ~DataSource() = default;
  /// Samples available before the source repeats; the cursor wraps (sample i mod count).
  virtual std::int64_t sample_count() const = 0;
  /// ids, labels: [seq] out. Thread-safe.
  virtual void read(std::int64_t sample, std::int32_t* ids, std::int32_t* labels) const = 0;
  virtual std::int64_t seq() const = 0;
};

/// A share of the file's samples: held-out ones are the last ⌈fraction·count⌉.
enum class Split : std::uint8_t { kAll, kTrain, kHeldOut };

/// A UTF-8/ASCII text read as bytes (vocab must be >= 256), or a `.bin` file of uint16 or uint32
/// little-endian tokens (uint32 when the vocabulary exceeds 65536).
Result<std::unique_ptr<DataSource>> open_data(const std::string& path, std::int64_t seq,
                                              std::int64_t vocab, Split split,
                                              double held_out_fraction);

/// Every epoch of `data` in an order of its own: sample i of epoch e is sample P(seed, e)(i) of
/// `data`, P a permutation of its samples. Needs no memory, and any sample can be read directly.
std::unique_ptr<DataSource> shuffled_data(std::unique_ptr<DataSource> data, std::uint64_t seed);

/// Seeded tokens, independent of the layout.
std::unique_ptr<DataSource> synthetic_data(std::uint64_t seed, std::int64_t seq,
                                           std::int64_t vocab);

}  // namespace bayplan::exec
