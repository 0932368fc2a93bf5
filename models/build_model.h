// Architecture → ModelGraph for dense decoders: GPT-2 shape and Llama shape, and any mixture of
// their norms, positions and activations. Not for: reading presets or configs (models/registry.h,
// planner/formats), nor for anything that a layout decides.
#pragma once

#include "planner/core/architecture.h"
#include "planner/core/model_graph.h"
#include "planner/core/result.h"

namespace bayplan {

/// Whether the architecture is one that build_model can build: sizes positive, heads a multiple
/// of kv_heads, even head_dim under rope. Errors name the field.
Status check_architecture(const Architecture& architecture);

/// Units "embedding", "blocks.0" … "blocks.L-1", "head"; three unit classes. With `dropout` there
/// is a dropout operator on the embedding's output and on both residual branches of a block.
/// Parameters are drawn with init_std, those that end a residual branch with init_std / √(2L).
/// Precondition: check_architecture(architecture) is ok.
ModelGraph build_model(const Architecture& architecture, bool dropout);

}  // namespace bayplan
