#include "planner/program/fingerprint.h"

#include <xxhash.h>

#include <string>
#include <type_traits>

namespace bayplan {
namespace {

/// Bumped when the serialisation changes, so that old and new fingerprints never agree by chance.
constexpr std::uint32_t kSerialisation = 1;

/// Canonical bytes: integers little-endian at their declared width, enumerations as one byte,
/// strings and lists behind a 64-bit count.
class Bytestream {
 public:
  template <class T>
  void put(T value) {
    if constexpr (std::is_enum_v<T>) {
      static_assert(sizeof(T) == 1);
      bytes_.push_back(static_cast<char>(value));
    } else {
      static_assert(std::is_integral_v<T>);
      std::make_unsigned_t<T> u{};
      u = static_cast<std::make_unsigned_t<T>>(value);
      char little[sizeof(T)];
      for (std::size_t i = 0; i < sizeof(T); ++i) little[i] = static_cast<char>(u >> (8 * i));
      bytes_.append(little, sizeof(T));
    }
  }
  void put(bool value) { bytes_.push_back(value ? '\1' : '\0'); }
  template <class Tag>
  void put(Id<Tag> id) {
    put(id.value);
  }
  void put(const Range& r) {
    put(r.begin);
    put(r.end);
  }
  void put(const std::string& s) {
    put(static_cast<std::uint64_t>(s.size()));
    bytes_ += s;
  }
  void put(const std::vector<std::int32_t>& values) {
    put(static_cast<std::uint64_t>(values.size()));
    for (std::int32_t v : values) put(v);
  }
  template <class T, class Put>
  void put_each(const std::vector<T>& values, Put each) {
    put(static_cast<std::uint64_t>(values.size()));
    for (const T& v : values) each(v);
  }
  void reserve(std::size_t n) { bytes_.reserve(n); }
  std::uint64_t hash() const { return XXH3_64bits(bytes_.data(), bytes_.size()); }

 private:
  std::string bytes_;
};

void put_buffer(Bytestream& out, const Buffer& b) {
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

void put_instruction(Bytestream& out, const Instruction& i) {
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
  out.put_each(list.instructions, [&](const Instruction& i) { put_instruction(out, i); });
  out.put_each(list.accesses, [&](const Access& a) {
    out.put(a.buffer);
    out.put(a.offset);
    out.put(a.bytes);
    out.put(a.mode);
    out.put(a.sharded);
  });
  out.put_each(list.waits, [&](InstructionId w) { out.put(w); });
}

void put_parameter_group(Bytestream& out, const ParameterGroup& g) {
  out.put(g.owner);
  out.put(g.trainable);
  out.put(g.dtype);
  out.put(g.weight_decay);
  out.put(g.tied);
  out.put(g.zero);
  out.put(g.optimizer);
  out.put(g.shard_axes);
  out.put(g.replicated_axes);
  out.put_each(g.parameters, [&](const GroupParameter& p) {
    out.put(p.parameter);
    out.put(p.name);
    out.put(p.shape.rank);
    for (int d = 0; d < p.shape.rank; ++d) out.put(p.shape[d]);
    out.put(p.offset);
    out.put(p.random_stream);
  });
  out.put(g.elements);
  out.put(g.padded_elements);
  out.put(g.shard_elements);
  out.put(g.pp_coordinates);
}

std::size_t size_hint(const Program& program) {
  std::size_t n = 4096 + 4 * program.rank_class.size();
  for (const RankClass& c : program.classes) {
    n += 48 * c.buffers.size() + 256;
    for (const InstructionList& l : c.programs) {
      n += 64 * l.instructions.size() + 24 * l.accesses.size() + 4 * l.waits.size();
    }
  }
  return n;
}

}  // namespace

std::uint64_t fingerprint(const Program& program) {
  Bytestream out;
  out.reserve(size_hint(program));
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
    out.put_each(c.buffers, [&](const Buffer& b) { put_buffer(out, b); });
    for (const InstructionList& list : c.programs) put_list(out, list);
  });
  out.put(program.rank_class);
  out.put(program.stage_rank);
  return out.hash();
}

}  // namespace bayplan
