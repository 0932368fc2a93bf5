// Runs a fuzz target over a folder of inputs as a plain test: every file, every prefix of it (what
// a truncated file looks like) and seeded mutations. Any crash or failed check ends the process.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kMostPrefixes = 400;
constexpr int kMutations = 400;

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

/// A few random edits: replaced, removed, inserted and repeated bytes.
std::string mutated(std::string text, std::mt19937_64& random) {
  static constexpr char kLikely[] = "{}[]\",:0123456789-+.eE xGiBKMTs/=@\0\xff";
  const std::size_t edits = 1 + random() % 4;
  for (std::size_t e = 0; e < edits && !text.empty(); ++e) {
    const std::size_t at = random() % text.size();
    const char c = kLikely[random() % (sizeof kLikely - 1)];
    switch (random() % 4) {
      case 0:
        text[at] = c;
        break;
      case 1:
        text.erase(at, 1 + random() % 8);
        break;
      case 2:
        text.insert(at, 1, c);
        break;
      default:
        text.insert(at, text.substr(at, 1 + random() % 40));
        break;
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: replay FOLDER\n");
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    files.push_back(entry.path());
  if (files.empty()) {
    std::fprintf(stderr, "%s holds no inputs\n", argv[1]);
    return 2;
  }
  std::sort(files.begin(), files.end());
  std::size_t runs = 0;
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    run(text);
    const std::size_t step = text.size() / kMostPrefixes + 1;
    for (std::size_t n = 0; n < text.size(); n += step, ++runs) run(text.substr(0, n));
    std::mt19937_64 random(text.size());
    for (int i = 0; i < kMutations; ++i, ++runs) run(mutated(text, random));
  }
  std::printf("%zu files, %zu inputs\n", files.size(), files.size() + runs);
  return 0;
}
