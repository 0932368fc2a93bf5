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
      last[draft.list.accesses[static_cast<std::size_t>(a)].buffer.index()] = static_cast<std::int32_t>(i);
    }
  }
  // A group call stays in one piece: releases go behind its last member.
  auto end_of_group = [&](std::size_t i) {
    while (before[i].fuse >= 0 && i + 1 < n && before[i + 1].fuse == before[i].fuse) ++i;
    return i;
  };
  std::vector<std::vector<BufferId>> endings(n);
  std::vector<Stream> ending_stream(n, Stream::kCompute);
  for (std::size_t b = 0; b < last.size(); ++b) {
    if (last[b] < 0 || c.result.buffers[b].persistent) continue;
    const std::size_t at = end_of_group(static_cast<std::size_t>(last[b]));
    endings[at].push_back(BufferId(b));
    ending_stream[at] = before[static_cast<std::size_t>(last[b])].stream;
  }
  std::vector<Access> accesses;
  for (std::size_t i = 0; i < n; ++i) {
    draft.list.instructions.push_back(before[i]);
    if (endings[i].empty()) continue;
    Instruction r;
    r.kind = InstructionKind::kRelease;
    r.stream = ending_stream[i];
    r.stage = before[i].stage;
    r.micro_batch = before[i].micro_batch;
    accesses.clear();
    for (BufferId b : endings[i]) accesses.push_back(use(c, b, AccessMode::kWrite));
    draft.add(r, accesses);
  }
}

}  // namespace

void pass_release(Lowering&, ClassDraft& c) {
  for (Draft& draft : c.drafts) release(c, draft);
}

}  // namespace bayplan
