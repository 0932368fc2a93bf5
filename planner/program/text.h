// The text form of a Program: one line an instruction, readable as documentation, round-trips.
// Golden files are in this form. Not for: plans (planner/formats/plan_json.h).
//
// A program is a sequence of classes, each with its buffers and up to four instruction lists:
//   class 0 pp 0 stages 0 micro_batches 2
//   arena device 7168 host 0 nvme 0
//   peak load 4096 train_step 7168 eval_step 6144 save 4096
//   b0 device parameters group 0 persistent bytes 1024 at 0
//   b4 device activation boundary_output 0 unit 1 mb 0 bytes 512 at 4096
//   program train_step
//   i0 compute load mb 0 writes b2 b3
//   i12 compute F stage 1 mb 0 unit 3 reads b4 b5[0:8192] writes b9 updates b7 waits i7
//   i13 p2p send_act stage 1 mb 0 unit 3 peer 2 boundary 0 fuse 4 reads b9 waits i12
//   i20 reduce reduce_scatter grads comm 1 group 0 updates b1 waits i17
// An instruction is its stream, its name (below), its purpose if it has one, the fields that are
// set, its accesses in order under the word of their mode, and its waits. Names:
//   init load F B I W R (recompute) send_act recv_act send_grad recv_grad all_gather
//   reduce_scatter all_reduce all_to_all broadcast prefetch offload release norm optimizer_step
//   end_step
// "comm" is a communication group and "group" a parameter group. "b5" is the whole buffer,
// "b5[a:b]" its bytes a to b, "b5[a:b]/shard" the rank's slice of that size: slice i begins at
// a + i·(b − a). "#" starts a comment.
#pragma once

#include <string>

#include "planner/core/result.h"
#include "planner/program/program.h"

namespace bayplan {

/// Instruction lines of one sub-program of one rank class.
std::string to_text(const Program& program, int rank_class, ProgramKind kind);
/// One instruction, without newline. Byte ranges are always written: the list knows no buffers.
std::string to_text(const InstructionList& list, InstructionId id);
/// Every buffer table and instruction list.
std::string to_text(const Program& program);

/// Parses what to_text(program) printed into `skeleton`'s mesh, units and groups: the classes of
/// the result are those of the text, and its fingerprint is computed. Side arrays come out in
/// issue order, as lower() leaves them. Errors give the line.
Result<Program> parse_text(const std::string& text, const Program& skeleton);

}  // namespace bayplan
