#include "planner/formats/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace bayplan {
namespace {

Error unwritable(const std::string& path, int error_number) {
  return Error{"unwritable-output", fmt::format("cannot write: {}", std::strerror(error_number)),
               path, "check that the folder exists and that you may write there"};
}

}  // namespace

Result<std::string> read_text_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return Error{
        missing ? "file-not-found" : "unreadable-file",
        fmt::format("cannot open: {}", std::strerror(errno)), path,
        missing ? "check the spelling and the current folder" : "check the file's permissions"};
  }
  struct stat info {};
  std::string text;
  int failure = ::fstat(file, &info) != 0 ? errno : 0;
  Error problem;
  if (failure == 0 && !S_ISREG(info.st_mode)) {
    problem = Error{"not-a-file", S_ISDIR(info.st_mode) ? "is a folder" : "is not a regular file",
                    path, "name a file"};
  } else if (failure == 0 && info.st_size > kLargestTextFile) {
    problem = Error{"file-too-large", fmt::format("has {} bytes", info.st_size), path,
                    fmt::format("at most {} bytes are read here", kLargestTextFile)};
  }
  if (failure == 0 && problem.code.empty()) {
    text.resize(static_cast<std::size_t>(info.st_size));
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::read(file, text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) failure = errno;
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    text.resize(done);
  }
  ::close(file);
  if (!problem.code.empty()) return problem;
  if (failure != 0) {
    return Error{"unreadable-file", fmt::format("cannot read: {}", std::strerror(failure)), path,
                 "check the file and the disk"};
  }
  return text;
}

Status write_text_file(const std::string& path, std::string_view text) {
  // A device, a pipe or a link keeps its identity: only plain files are replaced by renaming.
  struct stat info {};
  const bool special = ::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  const std::string temporary = special ? path : fmt::format("{}.{}.tmp", path, ::getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) return unwritable(path, errno);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int write_error = errno;
  const bool closed = std::fclose(file) == 0;
  const int close_error = errno;
  const bool renamed =
      special || !written || !closed || std::rename(temporary.c_str(), path.c_str()) == 0;
  if (!written || !closed || !renamed) {
    const int error_number = !written ? write_error : !closed ? close_error : errno;
    if (!special) std::remove(temporary.c_str());
    return unwritable(path, error_number);
  }
  return {};
}

}  // namespace bayplan
