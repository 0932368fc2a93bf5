// An instruction list whose entries can be moved, added and removed: every entry owns its accesses
// and names what it waits for by identity, not by position.
#pragma once

#include <algorithm>
#include <vector>

#include "planner/program/instruction.h"

namespace bayplan::test {

struct EditableList {
  struct Entry {
    Instruction instruction;
    std::vector<Access> accesses;
    std::vector<std::size_t> waits;  // ids
    std::size_t id = 0;
  };
  std::vector<Entry> entries;

  explicit EditableList(const InstructionList& list) {
    for (std::size_t i = 0; i < list.instructions.size(); ++i) {
      Entry e;
      e.instruction = list.instructions[i];
      e.id = i;
      const Range a = e.instruction.accesses;
      e.accesses.assign(list.accesses.begin() + a.begin, list.accesses.begin() + a.end);
      for (std::int32_t w = e.instruction.waits.begin; w < e.instruction.waits.end; ++w) {
        e.waits.push_back(list.waits[static_cast<std::size_t>(w)].index());
      }
      entries.push_back(std::move(e));
    }
  }

  std::size_t size() const { return entries.size(); }
  Entry& operator[](std::size_t i) { return entries[i]; }

  void move(std::size_t from, std::size_t to) {
    const auto f = entries.begin() + static_cast<std::ptrdiff_t>(from);
    const auto t = entries.begin() + static_cast<std::ptrdiff_t>(to);
    if (from < to) {
      std::rotate(f, f + 1, t + 1);
    } else {
      std::rotate(t, f, f + 1);
    }
  }
  void swap(std::size_t a, std::size_t b) { std::swap(entries[a], entries[b]); }
  void erase(std::size_t i) { entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i)); }

  /// The list again. Waits for removed entries are dropped; those for later entries too, unless
  /// `keep_later`: a mutant that only fails to parse proves little.
  InstructionList build(bool keep_later = false) const {
    std::vector<std::int32_t> position;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].id >= position.size()) position.resize(entries[i].id + 1, -1);
      position[entries[i].id] = static_cast<std::int32_t>(i);
    }
    InstructionList list;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      Instruction instruction = entries[i].instruction;
      instruction.accesses.begin = static_cast<std::int32_t>(list.accesses.size());
      list.accesses.insert(list.accesses.end(), entries[i].accesses.begin(),
                           entries[i].accesses.end());
      instruction.accesses.end = static_cast<std::int32_t>(list.accesses.size());
      instruction.waits.begin = static_cast<std::int32_t>(list.waits.size());
      for (std::size_t id : entries[i].waits) {
        const std::int32_t at = id < position.size() ? position[id] : -1;
        if (at < 0 || (at >= static_cast<std::int32_t>(i) && !keep_later)) continue;
        list.waits.push_back(InstructionId(at));
      }
      instruction.waits.end = static_cast<std::int32_t>(list.waits.size());
      list.instructions.push_back(instruction);
    }
    return list;
  }
};

}  // namespace bayplan::test
