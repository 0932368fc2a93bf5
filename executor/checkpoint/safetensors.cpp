#include "executor/checkpoint/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "planner/core/check.h"
#include "planner/core/units.h"

namespace bayplan::exec {
namespace {

constexpr std::int64_t kDataAlignment = 4096;

}  // namespace

std::string safetensors_dtype(DType dtype) {
  switch (dtype) {
    case DType::kFp64:
      return "F64";
    case DType::kFp32:
      return "F32";
    case DType::kBf16:
      return "BF16";
    case DType::kFp16:
      return "F16";
    case DType::kInt32:
      return "I32";
    case DType::kInt64:
      return "I64";
    case DType::kUint8:
      return "U8";
  }
  return "U8";
}

SafetensorsWriter::SafetensorsWriter(std::string path, const std::vector<LogicalTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)), partial_(path_ + ".part"), tensors_(tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const LogicalTensor& t : tensors_) {
    const std::int64_t bytes = t.shape.count() * dtype_size(t.dtype);
    auto shape = nlohmann::ordered_json::array();
    for (int d = 0; d < t.shape.rank; ++d) shape.push_back(t.shape[d]);
    header[t.name] = {{"dtype", safetensors_dtype(t.dtype)},
                      {"shape", std::move(shape)},
                      {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  const auto used = static_cast<std::int64_t>(sizeof(std::uint64_t) + text.size());
  text.append(static_cast<std::size_t>(round_up(used, kDataAlignment) - used), ' ');

  file_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) fail("cannot create");
  const std::uint64_t length = text.size();
  write(&length, sizeof length);
  write(text.data(), text.size());
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(partial_.c_str());
}

void SafetensorsWriter::fail(const std::string& what) const {
  throw std::runtime_error(what + " " + path_ + ": " + std::generic_category().message(errno));
}

void SafetensorsWriter::write(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(file_, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("cannot write");
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

void SafetensorsWriter::add(const LogicalTensor& tensor) {
  BAYPLAN_CHECK(next_ < tensors_.size() && tensors_[next_].name == tensor.name &&
                    tensors_[next_].dtype == tensor.dtype && tensors_[next_].shape == tensor.shape,
                "tensor " + tensor.name + " is not the next one announced");
  BAYPLAN_CHECK(static_cast<std::int64_t>(tensor.bytes.size()) ==
                    tensor.shape.count() * dtype_size(tensor.dtype),
                "tensor " + tensor.name + " has another size than its shape");
  ++next_;
  write(tensor.bytes.data(), tensor.bytes.size());
}

void SafetensorsWriter::finish() {
  BAYPLAN_CHECK(next_ == tensors_.size(), "not all announced tensors were added");
  if (::fsync(file_) != 0) fail("cannot flush");
  const int file = file_;
  file_ = -1;
  if (::close(file) != 0 || ::rename(partial_.c_str(), path_.c_str()) != 0) {
    const int cause = errno;
    ::unlink(partial_.c_str());
    errno = cause;
    fail("cannot finish");
  }
  // The new name is durable only once its directory is.
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  const int directory = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
}

}  // namespace bayplan::exec
