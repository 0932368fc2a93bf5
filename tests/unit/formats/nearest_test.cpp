// The nearest known name, as error hints show it.
#include "planner/formats/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace bayplan {
namespace {

const std::vector<std::string> kNames = {"gpt2", "gpt2-large", "gpt2-xl", "llama-3-8b",
                                         "llama-3-70b"};

TEST(Nearest, FewestEditsWin) {
  EXPECT_EQ(nearest_name("gpt2-lagre", kNames), "gpt2-large");  // one swap
  EXPECT_EQ(nearest_name("lama-3-8b", kNames), "llama-3-8b");   // one insertion
  EXPECT_EQ(nearest_name("GPT2-XL", kNames), "gpt2-xl");        // letter case is ignored
}

TEST(Nearest, APrefixCountsAsClose) { EXPECT_EQ(nearest_name("llama-3-7", kNames), "llama-3-70b"); }

TEST(Nearest, HostileLengthIsCut) {
  EXPECT_FALSE(nearest_name(std::string(1 << 20, 'x'), kNames).empty());
}

TEST(Nearest, NothingToNameIsEmpty) { EXPECT_EQ(nearest_name("x", {}), ""); }

}  // namespace
}  // namespace bayplan
