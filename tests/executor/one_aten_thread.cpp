// Holds the test's own thread to one ATen thread, as the executor holds every rank's.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace {

class OneAtenThread : public ::testing::Environment {
 public:
  void SetUp() override { at::set_num_threads(1); }
};

// googletest owns what is registered.
[[maybe_unused]] const auto* const one_aten_thread =
    ::testing::AddGlobalTestEnvironment(new OneAtenThread);

}  // namespace
