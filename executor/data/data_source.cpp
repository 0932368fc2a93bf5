#include "executor/data/data_source.h"

#include <cmath>
#include <vector>

#include "executor/data/token_file.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

/// Samples [first, first + count) of a file; neighbours share one token, the last label of one
/// and the first id of the next.
class FileData final : public DataSource {
 public:
  FileData(std::shared_ptr<const TokenFile> file, std::int64_t seq, std::int64_t first,
           std::int64_t count)
      : file_(std::move(file)), seq_(seq), first_(first), count_(count) {}

  std::int64_t sample_count() const override { return count_; }
  std::int64_t seq() const override { return seq_; }
  void read(std::int64_t sample, std::int32_t* ids, std::int32_t* labels) const override {
    const std::int64_t at = (first_ + sample % count_) * seq_;
    file_->read(at, seq_, ids);
    file_->read(at + 1, seq_, labels);
  }

 private:
  std::shared_ptr<const TokenFile> file_;
  std::int64_t seq_;
  std::int64_t first_;
  std::int64_t count_;
};

/// splitmix64 (Steele et al., OOPSLA 2014) as a function of its counter.
std::uint64_t hash(std::uint64_t seed, std::uint64_t counter) {
  std::uint64_t z = (seed * 0xD1342543DE82EF95ull) + (counter + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

/// A Feistel network permutes [0, 4^w); whoever lands at or beyond the count goes through again.
class ShuffledData final : public DataSource {
 public:
  ShuffledData(std::unique_ptr<DataSource> data, std::uint64_t seed)
      : data_(std::move(data)), seed_(seed) {
    while ((std::int64_t{1} << (2 * half_bits_)) < data_->sample_count()) ++half_bits_;
  }

  std::int64_t sample_count() const override { return data_->sample_count(); }
  std::int64_t seq() const override { return data_->seq(); }
  void read(std::int64_t sample, std::int32_t* ids, std::int32_t* labels) const override {
    const std::int64_t count = data_->sample_count();
    const auto epoch = static_cast<std::uint64_t>(sample / count);
    auto at = static_cast<std::uint64_t>(sample % count);
    do {
      at = permute(at, epoch);
    } while (at >= static_cast<std::uint64_t>(count));
    data_->read(static_cast<std::int64_t>(at), ids, labels);
  }

 private:
  std::uint64_t permute(std::uint64_t at, std::uint64_t epoch) const {
    constexpr std::uint64_t kRounds = 4;
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = at >> half_bits_, right = at & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t key = hash(seed_, epoch * kRounds + round);
      const std::uint64_t mixed = left ^ (hash(key, right) & mask);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }

  std::unique_ptr<DataSource> data_;
  std::uint64_t seed_;
  int half_bits_ = 1;
};

/// Token p of an endless stream is a hash of (seed, p).
class SyntheticData final : public DataSource {
 public:
  SyntheticData(std::uint64_t seed, std::int64_t seq, std::int64_t vocab)
      : seed_(seed), seq_(seq), vocab_(vocab) {}

  std::int64_t sample_count() const override { return std::int64_t{1} << 40; }
  std::int64_t seq() const override { return seq_; }
  void read(std::int64_t sample, std::int32_t* ids, std::int32_t* labels) const override {
    const std::uint64_t at = static_cast<std::uint64_t>(sample) * static_cast<std::uint64_t>(seq_);
    for (std::int64_t i = 0; i < seq_; ++i) {
      ids[i] = token(at + static_cast<std::uint64_t>(i));
      labels[i] = token(at + static_cast<std::uint64_t>(i) + 1);
    }
  }

 private:
  std::int32_t token(std::uint64_t position) const {
    return static_cast<std::int32_t>(hash(seed_, position) % static_cast<std::uint64_t>(vocab_));
  }

  std::uint64_t seed_;
  std::int64_t seq_;
  std::int64_t vocab_;
};

}  // namespace

Result<std::unique_ptr<DataSource>> open_data(const std::string& path, std::int64_t seq,
                                              std::int64_t vocab, Split split,
                                              double held_out_fraction) {
  BAYPLAN_CHECK(seq >= 1 && vocab >= 1, "sequence and vocabulary must be positive");
  if (!(held_out_fraction >= 0.0 && held_out_fraction < 1.0)) {
    return Error{"bad-fraction", "held-out fraction must be in [0, 1)", path,
                 "use 0.1, for example"};
  }
  BAYPLAN_TRY(file, TokenFile::open(path, vocab));
  // A sample needs one token more than seq: the label of its last position.
  const std::int64_t samples = (file->count() - 1) / seq;
  const auto held_out =
      static_cast<std::int64_t>(std::ceil(held_out_fraction * static_cast<double>(samples)));
  const std::int64_t first = split == Split::kHeldOut ? samples - held_out : 0;
  const std::int64_t count = split == Split::kAll       ? samples
                             : split == Split::kHeldOut ? held_out
                                                        : samples - held_out;
  if (count < 1) {
    const char* const what = split == Split::kAll       ? "data"
                             : split == Split::kHeldOut ? "the held-out part of the data"
                                                        : "the training part of the data";
    return Error{"data-too-short",
                 "file of " + std::to_string(file->count()) + " tokens holds " +
                     std::to_string(samples) + " samples of " + std::to_string(seq) +
                     " tokens, none for " + what,
                 path, "use a longer file or a shorter --seq"};
  }
  return std::unique_ptr<DataSource>(std::make_unique<FileData>(file, seq, first, count));
}

std::unique_ptr<DataSource> shuffled_data(std::unique_ptr<DataSource> data, std::uint64_t seed) {
  return std::make_unique<ShuffledData>(std::move(data), seed);
}

std::unique_ptr<DataSource> synthetic_data(std::uint64_t seed, std::int64_t seq,
                                           std::int64_t vocab) {
  return std::make_unique<SyntheticData>(seed, seq, vocab);
}

}  // namespace bayplan::exec
