#include "executor/comm/collective_groups.h"

#include <set>

namespace bayplan::exec {

std::vector<std::vector<int>> collective_groups(const Program& program) {
  std::set<std::vector<int>> found;
  for (int rank = 0; rank < program.world_size(); ++rank) {
    std::set<std::int32_t> seen;
    for (const InstructionList& list : program.class_of(rank).programs) {
      for (const Instruction& i : list.instructions) {
        if (!is_collective(i.kind) || !seen.insert(i.group.value).second) continue;
        std::vector<int> members = group_members(program, i.group, rank);
        if (members.size() > 1) found.insert(std::move(members));
      }
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace bayplan::exec
