#include "executor/data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace bayplan::exec {
namespace {

Error data_error(const std::string& code, const std::string& path, const std::string& message,
                 const std::string& hint) {
  return {code, message, path, hint};
}

bool is_token_file(const std::string& path) {
  constexpr std::string_view kSuffix = ".bin";
  return path.size() > kSuffix.size() &&
         path.compare(path.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0;
}

}  // namespace

Result<std::shared_ptr<const TokenFile>> TokenFile::open(const std::string& path,
                                                         std::int64_t vocab) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0) {
    const std::string cause = std::generic_category().message(errno);
    if (file >= 0) ::close(file);
    return data_error("data-not-readable", path, "cannot read data file: " + cause,
                      "give a text file or a .bin file of tokens with --data");
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(file);
    return data_error("data-not-readable", path, "data is not a regular file",
                      "give one text file or one .bin file of tokens with --data");
  }
  const auto bytes = static_cast<std::int64_t>(status.st_size);
  const bool tokens = is_token_file(path);
  const int width = !tokens ? 1 : vocab > 65536 ? 4 : 2;
  if (bytes == 0) {
    ::close(file);
    return data_error("data-empty", path, "data file is empty", "give a file with text or tokens");
  }
  if (!tokens && vocab < 256) {
    ::close(file);
    return data_error("vocab-too-small", path,
                      "text is read as bytes, which needs a vocabulary of 256, the model has " +
                          std::to_string(vocab),
                      "use a model with vocab=256 or more, or a .bin file of tokens");
  }
  if (bytes % width != 0) {
    ::close(file);
    return data_error(
        "data-odd-size", path,
        "size of " + std::to_string(bytes) + " bytes is not a multiple of " +
            std::to_string(width) + ", the bytes per token",
        "tokens are little-endian uint16, or uint32 when the vocabulary exceeds 65536");
  }
  void* mapped = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_PRIVATE, file, 0);
  const std::string cause = std::generic_category().message(errno);
  ::close(file);
  if (mapped == MAP_FAILED) {
    return data_error("data-not-readable", path, "cannot map data file: " + cause,
                      "check the free memory and the file system");
  }
  const std::shared_ptr<const TokenFile> result(
      new TokenFile(static_cast<const std::byte*>(mapped), bytes, width));
  for (std::int64_t i = 0; tokens && i < result->count_; ++i) {
    const std::int64_t token = result->token(i);
    if (token < vocab) continue;
    return data_error("token-out-of-range", path,
                      "token " + std::to_string(token) + " at byte " + std::to_string(i * width) +
                          " is not below the vocabulary of " + std::to_string(vocab),
                      "use the model that the file was tokenised for");
  }
  return result;
}

TokenFile::~TokenFile() {
  ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(bytes_));
}

std::int64_t TokenFile::token(std::int64_t i) const {
  const std::byte* at = data_ + i * width_;
  if (width_ == 1) return static_cast<std::int64_t>(*at);
  if (width_ == 2) {
    std::uint16_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void TokenFile::read(std::int64_t first, std::int64_t n, std::int32_t* out) const {
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<std::int32_t>(token(first + i));
}

}  // namespace bayplan::exec
