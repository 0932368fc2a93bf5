// Ends the life of every transient buffer right behind its last use, on the stream of that use,
// so that a release never makes another stream wait.
#include <vector>

#include "planner/program/lowering.h"

namespace bayplan {
namespace {

void release(ClassDraft& c, Draft& draft) {
  std::vector<Instruction> before = std::move(draft.list.instructions);
  draft.list.instructions.clear();
  const std::size_t n = before.size();
  std::vector<std::int32_t> last(c.result.buffers.size(), -1);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::int32_t a = before[i].accesses.begin; a < before[i].accesses.end; ++a) {
      last[draft.list.accesses[static_cast<std::size_t>(a)].buffer.index()] =
          static_cast<std::int32_t>(i);
    }
  }
  // A group call stays in one piece: releases go behind its last member.
  auto end_of_group = [&](std::size_t i) {
    while (before[i].fuse >= 0 && i + 1 < n && before[i + 1].fuse == before[i].fuse) ++i;
    return i;
  };
  // Buffers chained by the instruction behind which they end, ascending.
  std::vector<std::int32_t> first_ending(n, -1);
  std::vector<std::int32_t> next_ending(last.size(), -1);
  std::vector<Stream> ending_stream(n, Stream::kCompute);
  for (std::size_t b = last.size(); b-- > 0;) {
    if (last[b] < 0 || c.result.buffers[b].persistent) continue;
    const std::size_t at = end_of_group(static_cast<std::size_t>(last[b]));
    next_ending[b] = first_ending[at];
    first_ending[at] = static_cast<std::int32_t>(b);
    ending_stream[at] = before[static_cast<std::size_t>(last[b])].stream;
  }
  draft.list.instructions.reserve(n + n / 2);
  draft.list.accesses.reserve(draft.list.accesses.size() + last.size());
  std::vector<Access> accesses;
  for (std::size_t i = 0; i < n; ++i) {
    draft.list.instructions.push_back(before[i]);
    if (first_ending[i] < 0) continue;
    Instruction r;
    r.kind = InstructionKind::kRelease;
    r.stream = ending_stream[i];
    r.stage = before[i].stage;
    r.micro_batch = before[i].micro_batch;
    accesses.clear();
    for (std::int32_t b = first_ending[i]; b >= 0; b = next_ending[static_cast<std::size_t>(b)]) {
      accesses.push_back(use(c, BufferId(b), AccessMode::kWrite));
    }
    draft.add(r, accesses);
  }
}

}  // namespace

void pass_release(Lowering&, ClassDraft& c) {
  for (Draft& draft : c.drafts) release(c, draft);
}

}  // namespace bayplan
