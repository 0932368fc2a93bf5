#!/usr/bin/env bash
# The tests that need a GPU, as one ctest entry of every build: skipped (77) where the build has no
# CUDA or the machine no GPU, never passed without one.
set -u
if [ -z "${BAYPLAN_GPU_TESTS:-}" ]; then
  echo "skipped: built without CUDA (tools/build cuda)"
  exit 77
fi
exec "$BAYPLAN_GPU_TESTS" "$@"
