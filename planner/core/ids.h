// Indices that cannot be exchanged for one another. Each is a position in one named vector.
#pragma once

#include <compare>
#include <cstdint>

namespace bayplan {

/// Position in the vector that `Tag` stands for; -1 means "none".
template <class Tag>
struct Id {
  std::int32_t value = -1;

  constexpr Id() = default;
  constexpr explicit Id(std::int32_t v) : value(v) {}
  constexpr explicit Id(std::size_t v) : value(static_cast<std::int32_t>(v)) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using UnitId = Id<struct UnitTag>;                // ModelGraph::units, Program::units
using ParameterGroupId = Id<struct GroupTag>;     // Program::parameter_groups
using BufferId = Id<struct BufferTag>;            // RankClass::buffers
using InstructionId = Id<struct InstructionTag>;  // InstructionList::instructions
using CommunicationGroupId = Id<struct CommTag>;  // Program::communication_groups

}  // namespace bayplan
