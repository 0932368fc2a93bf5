// Runs the GPU tests, or exits with 77 (skipped) when there is no GPU or every test was skipped.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  ::testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU (%s)\n",
                code == cudaSuccess ? "none found" : cudaGetErrorString(code));
    return kSkipped;
  }
  const int result = RUN_ALL_TESTS();
  const bool none_ran = ::testing::UnitTest::GetInstance()->successful_test_count() == 0;
  return result == 0 && none_ran ? kSkipped : result;
}
