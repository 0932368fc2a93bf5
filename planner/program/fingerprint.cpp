#include "planner/program/fingerprint.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace bayplan {
namespace {

/// Bumped when the serialisation changes, so that old and new fingerprints never agree by chance.
constexpr std::uint32_t kSerialisation = 1;

/// Fields of one record, written to memory that has room for them: integers little-endian at
/// their declared width, enumerations and booleans as one byte. Kept by value, so that the
/// position stays in a register.
struct Record {
  static constexpr std::size_t kMaxBytes = 256;
  unsigned char* at;

  template <class T>
  void put(T value) {
    if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
      static_assert(sizeof(T) == 1);
      *at++ = static_cast<unsigned char>(value);
    } else {
      static_assert(std::is_integral_v<T>);
      std::memcpy(at, &value, sizeof(T));
      if constexpr (std::endian::native == std::endian::big) std::reverse(at, at + sizeof(T));
      at += sizeof(T);
    }
  }
  template <class Tag>
  void put(Id<Tag> id) {
    put(id.value);
  }
  void put(const Range& r) {
    put(r.begin);
    put(r.end);
  }
};

/// Canonical bytes of everything, hashed as they come: records, and strings and lists behind a
/// 64-bit count.
class Bytestream {
 public:
  Bytestream() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }

  /// fill(record) puts at most Record::kMaxBytes.
  template <class Fill>
  void record(Fill fill) {
    if (size_ + Record::kMaxBytes > bytes_.size()) flush();
    Record r{bytes_.data() + size_};
    fill(r);
    size_ = static_cast<std::size_t>(r.at - bytes_.data());
  }
  template <class T>
  void put(T value) {
    record([value](Record& r) { r.put(value); });
  }
  void put(const std::string& s) {
    put(static_cast<std::uint64_t>(s.size()));
    flush();
    XXH3_64bits_update(state_.get(), s.data(), s.size());
  }
  template <class T, class Put>
  void put_each(const std::vector<T>& values, Put each) {
    put(static_cast<std::uint64_t>(values.size()));
    for (const T& v : values) each(v);
  }
  template <class T, class Fill>
  void records(const std::vector<T>& values, Fill fill) {
    put_each(values, [&](const T& v) { record([&](Record& r) { fill(r, v); }); });
  }
  void put(const std::vector<std::int32_t>& values) {
    records(values, [](Record& r, std::int32_t v) { r.put(v); });
  }
  std::uint64_t hash() {
    flush();
    return XXH3_64bits_digest(state_.get());
  }

 private:
  void flush() {
    XXH3_64bits_update(state_.get(), bytes_.data(), size_);
    size_ = 0;
  }

  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
  std::array<unsigned char, 16384> bytes_;
  std::size_t size_ = 0;
};

void put_buffer(Record& out, const Buffer& b) {
  out.put(b.tier);
  out.put(b.role);
  out.put(b.region);
  out.put(b.region_index);
  out.put(b.unit);
  out.put(b.micro_batch);
  out.put(b.parameter_group);
  out.put(b.persistent);
  out.put(b.bytes);
  out.put(b.offset);
}

void put_instruction(Record& out, const Instruction& i) {
  out.put(i.kind);
  out.put(i.stream);
  out.put(i.purpose);
  out.put(i.stage);
  out.put(i.chunk);
  out.put(i.micro_batch);
  out.put(i.unit);
  out.put(i.parameter_group);
  out.put(i.group);
  out.put(i.peer_stage);
  out.put(i.boundary);
  out.put(i.fuse);
  out.put(i.accesses);
  out.put(i.waits);
  out.put(i.predicate);
  out.put(i.run_time_count);
}

void put_list(Bytestream& out, const InstructionList& list) {
  out.records(list.instructions, [](Record& r, const Instruction& i) { put_instruction(r, i); });
  out.records(list.accesses, [](Record& r, const Access& a) {
    r.put(a.buffer);
    r.put(a.offset);
    r.put(a.bytes);
    r.put(a.mode);
    r.put(a.sharded);
  });
  out.records(list.waits, [](Record& r, InstructionId w) { r.put(w); });
}

void put_parameter_group(Bytestream& out, const ParameterGroup& g) {
  out.record([&](Record& r) {
    r.put(g.owner);
    r.put(g.trainable);
    r.put(g.dtype);
    r.put(g.weight_decay);
    r.put(g.tied);
    r.put(g.zero);
    r.put(g.optimizer);
    r.put(g.shard_axes);
    r.put(g.replicated_axes);
    r.put(g.elements);
    r.put(g.padded_elements);
    r.put(g.shard_elements);
    r.put(g.parameter_elements);
    r.put(g.gradient_elements);
    r.put(g.state_tier);
    r.put(g.gathered);
    r.put(g.reduced_each_micro_batch);
  });
  out.put_each(g.parameters, [&](const GroupParameter& p) {
    out.put(p.name);
    out.record([&](Record& r) {
      r.put(p.parameter);
      r.put(p.shape.rank);
      for (int d = 0; d < p.shape.rank; ++d) r.put(p.shape[d]);
      r.put(p.offset);
      r.put(p.random_stream);
    });
  });
  out.put(g.pp_coordinates);
}

}  // namespace

std::uint64_t fingerprint(const Program& program) {
  Bytestream out;
  out.put(kSerialisation);
  const Mesh& mesh = program.mesh;
  for (int degree : {mesh.pp, mesh.dp, mesh.cp, mesh.tp, mesh.ep}) out.put(degree);
  out.put(program.reduction_dtype);
  out.put_each(program.parameter_groups,
               [&](const ParameterGroup& g) { put_parameter_group(out, g); });
  out.put_each(program.communication_groups, [&](const CommunicationGroup& g) {
    out.put(g.name);
    out.put(g.axes);
    out.put(g.pp_coordinates);
  });
  out.put_each(program.classes, [&](const RankClass& c) {
    out.put(c.pp);
    out.put(c.stages);
    out.put(c.micro_batches);
    out.records(c.buffers, [](Record& r, const Buffer& b) { put_buffer(r, b); });
    for (const InstructionList& list : c.programs) put_list(out, list);
  });
  out.put(program.rank_class);
  out.put(program.stage_rank);
  return out.hash();
}

}  // namespace bayplan
