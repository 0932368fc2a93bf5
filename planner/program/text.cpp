#include "planner/program/text.h"

#include <charconv>

#include "planner/program/text_names.h"

namespace bayplan {
namespace {

void add(std::string& out, std::string_view word) {
  if (!out.empty() && out.back() != '\n') out += ' ';
  out += word;
}

void add_number(std::string& out, std::int64_t value) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

void add(std::string& out, std::string_view word, std::int64_t value) {
  add(out, word);
  out += ' ';
  add_number(out, value);
}

/// Field that is absent at -1.
void add_set(std::string& out, std::string_view word, std::int64_t value) {
  if (value != -1) add(out, word, value);
}

void add_indexed(std::string& out, char prefix, std::int64_t index) {
  add(out, std::string_view(&prefix, 1));
  add_number(out, index);
}

void add_access(std::string& out, const Access& access, const std::vector<Buffer>* buffers) {
  add_indexed(out, 'b', access.buffer.value);
  const bool whole = buffers != nullptr && access.buffer.valid() &&
                     access.buffer.index() < buffers->size() && access.offset == 0 &&
                     access.bytes == (*buffers)[access.buffer.index()].bytes && !access.sharded;
  if (whole) return;
  out += '[';
  add_number(out, access.offset);
  out += ':';
  add_number(out, access.offset + access.bytes);
  out += access.sharded ? "]/shard" : "]";
}

void add_instruction(std::string& out, const InstructionList& list, std::size_t index,
                     const std::vector<Buffer>* buffers) {
  const Instruction& i = list.instructions[index];
  add_indexed(out, 'i', static_cast<std::int64_t>(index));
  add(out, stream_name(i.stream));
  add(out, text::kInstructionWords[static_cast<std::size_t>(i.kind)]);
  if (i.purpose != Purpose::kNone) add(out, purpose_name(i.purpose));
  add_set(out, "stage", i.stage);
  add_set(out, "chunk", i.chunk);
  add_set(out, "mb", i.micro_batch);
  add_set(out, "unit", i.unit.value);
  add_set(out, "comm", i.group.value);
  add_set(out, "group", i.parameter_group.value);
  add_set(out, "peer", i.peer_stage);
  add_set(out, "boundary", i.boundary);
  add_set(out, "fuse", i.fuse);
  if (i.predicate.valid()) add(out, "predicate"), add_indexed(out, 'b', i.predicate.value);
  if (i.run_time_count.valid()) add(out, "count"), add_indexed(out, 'b', i.run_time_count.value);
  for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
    const Access& access = list.accesses[static_cast<std::size_t>(a)];
    const bool same_mode =
        a > i.accesses.begin && list.accesses[static_cast<std::size_t>(a - 1)].mode == access.mode;
    if (!same_mode) add(out, text::kModeWords[static_cast<std::size_t>(access.mode)]);
    add_access(out, access, buffers);
  }
  if (i.waits.size() > 0) add(out, "waits");
  for (std::int32_t w = i.waits.begin; w < i.waits.end; ++w) {
    add_indexed(out, 'i', list.waits[static_cast<std::size_t>(w)].value);
  }
}

void add_list(std::string& out, const RankClass& rank_class, ProgramKind kind) {
  const InstructionList& list = rank_class.programs[static_cast<std::size_t>(kind)];
  for (std::size_t i = 0; i < list.instructions.size(); ++i) {
    add_instruction(out, list, i, &rank_class.buffers);
    out += '\n';
  }
}

void add_buffer(std::string& out, const Buffer& b, std::size_t index) {
  add_indexed(out, 'b', static_cast<std::int64_t>(index));
  add(out, tier_name(b.tier));
  add(out, buffer_role_name(b.role));
  if (b.region != Region::kNone) {
    add(out, text::kRegionWords[static_cast<std::size_t>(b.region)], b.region_index);
  } else if (b.region_index != 0) {
    add(out, "none", b.region_index);
  }
  add_set(out, "unit", b.unit.value);
  add_set(out, "mb", b.micro_batch);
  add_set(out, "group", b.parameter_group.value);
  if (b.persistent) add(out, "persistent");
  add(out, "bytes", b.bytes);
  add(out, "at", b.offset);
  out += '\n';
}

}  // namespace

std::string to_text(const Program& program, int rank_class, ProgramKind kind) {
  std::string out;
  add_list(out, program.classes[static_cast<std::size_t>(rank_class)], kind);
  return out;
}

std::string to_text(const InstructionList& list, InstructionId id) {
  std::string out;
  add_instruction(out, list, id.index(), nullptr);
  return out;
}

std::string to_text(const Program& program) {
  std::string out;
  for (std::size_t c = 0; c < program.classes.size(); ++c) {
    const RankClass& rank_class = program.classes[c];
    add(out, "class", static_cast<std::int64_t>(c));
    add(out, "pp", rank_class.pp);
    add(out, "stages");
    for (std::size_t s = 0; s < rank_class.stages.size(); ++s) {
      out += s == 0 ? ' ' : ',';
      add_number(out, rank_class.stages[s]);
    }
    add(out, "micro_batches", rank_class.micro_batches);
    out += "\narena";
    for (int t = 0; t < kTierCount; ++t) {
      add(out, tier_name(static_cast<Tier>(t)),
          rank_class.arena_bytes[static_cast<std::size_t>(t)]);
    }
    out += "\npeak";
    for (int k = 0; k < kProgramKindCount; ++k) {
      add(out, program_kind_name(static_cast<ProgramKind>(k)),
          rank_class.peak_bytes[static_cast<std::size_t>(k)]);
    }
    out += '\n';
    for (std::size_t b = 0; b < rank_class.buffers.size(); ++b) {
      add_buffer(out, rank_class.buffers[b], b);
    }
    for (int k = 0; k < kProgramKindCount; ++k) {
      const ProgramKind kind = static_cast<ProgramKind>(k);
      add(out, "program");
      add(out, program_kind_name(kind));
      out += '\n';
      add_list(out, rank_class, kind);
    }
  }
  return out;
}

}  // namespace bayplan
