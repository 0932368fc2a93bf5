#include "executor/trace/rank_status.h"

#include <array>
#include <string_view>

#include "planner/program/text.h"

namespace bayplan::exec {
namespace {

/// Appends to a fixed buffer; what does not fit is cut off. Async-signal-safe.
struct Line {
  char* out;
  std::size_t capacity;
  std::size_t size = 0;

  void add(std::string_view text) noexcept {
    for (const char c : text) {
      if (size < capacity) out[size++] = c;
    }
  }
  void add(std::int64_t value) noexcept {
    std::array<char, 24> digits{};
    std::size_t n = 0;
    const bool negative = value < 0;
    std::uint64_t rest =
        negative ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    do {
      digits[n++] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest != 0);
    if (negative) add("-");
    while (n > 0) {
      --n;
      add(std::string_view(&digits[n], 1));
    }
  }
};

}  // namespace

InstructionId current_instruction(const RankStatus& status) noexcept {
  const Activity host = status.host.activity.load(std::memory_order_relaxed);
  const Activity progress = status.progress.activity.load(std::memory_order_relaxed);
  const std::int32_t host_at = status.host.instruction.load(std::memory_order_relaxed);
  const std::int32_t progress_at = status.progress.instruction.load(std::memory_order_relaxed);
  if (host == Activity::kRunning) return InstructionId(host_at);
  if (progress == Activity::kRunning) return InstructionId(progress_at);
  if (host == Activity::kWaiting) return InstructionId(host_at);
  if (progress == Activity::kWaiting) return InstructionId(progress_at);
  return {};
}

std::string describe_status(const Program& program, int rank, const RankStatus& status) {
  const InstructionId at = current_instruction(status);
  const ProgramKind kind = status.program.load(std::memory_order_relaxed);
  std::string text = "step " + std::to_string(status.step.load(std::memory_order_relaxed)) +
                     " of " + std::string(program_kind_name(kind));
  const InstructionList& list = program.list(rank, kind);
  if (!at.valid() || at.index() >= list.instructions.size()) return text + ", between instructions";
  return text + ", instruction " + to_text(list, at);
}

std::size_t write_status(const Program& program, int rank, const RankStatus& status,
                         const Communicator& communicator, char* out,
                         std::size_t capacity) noexcept {
  Line line{out, capacity > 0 ? capacity - 1 : 0};
  const InstructionId at = current_instruction(status);
  const ProgramKind kind = status.program.load(std::memory_order_relaxed);
  line.add("rank ");
  line.add(rank);
  line.add(" at step ");
  line.add(status.step.load(std::memory_order_relaxed));
  line.add(" of ");
  line.add(program_kind_name(kind));
  const InstructionList& list = program.list(rank, kind);
  if (at.valid() && at.index() < list.instructions.size()) {
    line.add(", instruction i");
    line.add(at.value);
    line.add(" ");
    line.add(instruction_name(list.instructions[at.index()].kind));
  } else {
    line.add(", between instructions");
  }
  const int awaited = communicator.awaiting();
  if (awaited >= 0) {
    line.add(", waiting for rank ");
    line.add(awaited);
  } else {
    line.add(", waiting for no rank");
  }
  if (capacity > 0) out[line.size++] = '\n';
  return line.size;
}

}  // namespace bayplan::exec
