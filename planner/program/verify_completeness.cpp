// Completeness: the instructions that the job needs are there, each once (verify_tasks.cpp), what
// they pass on flows in the one right order (verify_flow.cpp), and the list ends when all is done.
#include "planner/program/verify_job.h"

namespace bayplan::verification {
namespace {

void check_end(const ClassProgram& p, const HappensBefore& order, Findings& findings) {
  const std::int32_t last = p.size() - 1;
  if (last < 0) return;  // lacks its end_step already
  if (p.at(last).kind != InstructionKind::kEndStep) {
    findings.add(Violation::kMissing, p.kind, p.rank, InstructionId(last),
                 describe(p.list, last) + " comes behind end_step, or in place of it");
    return;
  }
  for (std::int32_t i = 0; i < last; ++i) {
    if (order.before(i, last)) continue;
    findings.add(Violation::kRace, p.kind, p.rank, InstructionId(last),
                 "end_step does not wait for " + describe(p.list, i));
    return;
  }
}

}  // namespace

void check_batch(const Program& program, Findings& findings) {
  const Mesh& mesh = program.mesh;
  for (int pp = 0; pp < mesh.pp; ++pp) {
    std::int64_t samples = 0;
    for (int dp = 0; dp < mesh.dp; ++dp) {
      samples +=
          program.class_of(mesh.rank_of({{pp, dp, 0, 0}})).micro_batches * program.job.micro_batch;
    }
    if (samples == program.job.global_batch) continue;
    findings.add(Violation::kMissing, ProgramKind::kTrainStep, mesh.rank_of({{pp, 0, 0, 0}}), {},
                 "the replicas of pipeline rank " + std::to_string(pp) + " process " +
                     std::to_string(samples) + " samples, the global batch is " +
                     std::to_string(program.job.global_batch));
  }
}

void check_completeness(const ClassProgram& p, const HappensBefore& order, Findings& findings) {
  const bool computes = p.kind == ProgramKind::kTrainStep || p.kind == ProgramKind::kEvalStep;
  // Also bounds what the checks below allocate.
  if (computes && p.rank_class.micro_batches > p.size()) {
    return findings.add(Violation::kMissing, p.kind, p.rank, {},
                        "the program has fewer instructions than micro-batches");
  }
  const Job job(p);
  check_tasks(job, findings);
  check_flow(job, findings);
  check_end(p, order, findings);
}

}  // namespace bayplan::verification
