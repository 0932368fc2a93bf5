// All CPU kernels, by family. Contracts that hold for every one of them:
//   * plain row-major pointers; no allocation, no threads, no errors to report beyond what a
//     docstring names; sizes may be 0 and need not be multiples of a vector width; pointers need
//     only the alignment of their element type;
//   * a kernel for T exists for T = float, double and (where its family says so) bf16. bf16 is
//     read exactly, computed in float and rounded to nearest-even once, when stored;
//   * results do not depend on threads, on how a Range is split, on alignment, nor on where in
//     the array an element stands. A sum over a row is taken in 32 interleaved lanes (16 in
//     double; column c goes to lane c % 32), folded by halves: its order depends on the row
//     width only. A sum over rows ascends;
//   * multiply-adds are fused where the machine has FMA, so bits are equal between machines that
//     have it (AVX2, AVX-512) and may differ from one that has not.
// Naive fp64 versions of the same functions are in kernels/reference/.
#pragma once

#include "kernels/activation.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/norm.h"
#include "kernels/optim.h"
#include "kernels/philox.h"
#include "kernels/ranked_sum.h"
#include "kernels/rope.h"
#include "kernels/types.h"
