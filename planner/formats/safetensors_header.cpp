#include "planner/formats/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "planner/formats/json_cursor.h"

namespace bayplan {
namespace {

constexpr std::int64_t kLengthBytes = 8;

constexpr std::array<std::pair<DType, std::string_view>, 6> kReadDTypes = {{
    {DType::kFp64, "F64"},
    {DType::kFp32, "F32"},
    {DType::kFp16, "F16"},
    {DType::kBf16, "BF16"},
    {DType::kInt64, "I64"},
    {DType::kInt32, "I32"},
}};

/// Length of the JSON text, checked against the file.
Result<std::int64_t> header_length(std::string_view start, std::int64_t file_bytes,
                                   const std::string& name) {
  if (file_bytes < kLengthBytes || static_cast<std::int64_t>(start.size()) < kLengthBytes) {
    return Error{
        "truncated-safetensors",
        fmt::format("has {} bytes, a safetensors file starts with 8 bytes of length", file_bytes),
        name, "name a file of 'run --dump-state', or write it again"};
  }
  std::uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i)
    length = (length << 8) | static_cast<unsigned char>(start[static_cast<std::size_t>(i)]);
  if (length > static_cast<std::uint64_t>(kLongestSafetensorsHeader)) {
    return Error{"bad-safetensors",
                 fmt::format("would have a header of {} bytes, more than {}", length,
                             kLongestSafetensorsHeader),
                 name, "is it a safetensors file? 'run --dump-state' writes one"};
  }
  if (length > static_cast<std::uint64_t>(file_bytes - kLengthBytes)) {
    return Error{"truncated-safetensors", fmt::format("ends inside its header of {} bytes", length),
                 name, "write or copy the file again"};
  }
  return static_cast<std::int64_t>(length);
}

Result<DType> read_dtype(const JsonCursor& at) {
  BAYPLAN_TRY(text, at.string());
  std::vector<std::string_view> known;
  for (const auto& [dtype, name] : kReadDTypes) {
    if (name == text) return dtype;
    known.push_back(name);
  }
  return at.error("unsupported-dtype",
                  fmt::format("elements of type '{}' are not read", text.substr(0, 60)),
                  fmt::format("known: {}", fmt::join(known, ", ")));
}

template <class Read>
Result<std::vector<std::int64_t>> read_integers(const JsonCursor& at, Read&& read) {
  BAYPLAN_TRY(elements, at.elements());
  std::vector<std::int64_t> out;
  for (const JsonCursor& element : elements) {
    BAYPLAN_TRY(value, read(element));
    out.push_back(value);
  }
  return out;
}

Result<SafetensorsTensor> read_tensor(const JsonCursor& at, const std::string& name,
                                      std::int64_t first_byte, std::int64_t data_bytes) {
  SafetensorsTensor tensor;
  tensor.name = name;
  std::vector<std::int64_t> offsets;
  const auto size = [](const JsonCursor& c) { return c.integer(0); };
  const auto sizes = [&](const JsonCursor& c) { return read_integers(c, size); };
  ObjectReader r(at);
  r.required("dtype", tensor.dtype, read_dtype);
  r.required("shape", tensor.shape, sizes);
  r.required("data_offsets", offsets, sizes);
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    return at.error("bad-safetensors",
                    fmt::format("data_offsets [{}] are no range inside the {} bytes of data",
                                fmt::join(offsets, ", "), data_bytes),
                    "the file is damaged or cut off: write or copy it again");
  }
  std::int64_t bytes = dtype_size(tensor.dtype);
  bool overflow = false;
  for (const std::int64_t n : tensor.shape)
    overflow = overflow || __builtin_mul_overflow(bytes, n, &bytes);
  if (overflow || bytes != offsets[1] - offsets[0]) {
    return at.error("bad-safetensors",
                    fmt::format("a shape of [{}] does not take the {} bytes of its data_offsets",
                                fmt::join(tensor.shape, ", "), offsets[1] - offsets[0]),
                    "the file is damaged: write it again");
  }
  tensor.begin = first_byte + offsets[0];
  tensor.end = first_byte + offsets[1];
  return tensor;
}

/// The tensors fill [first_byte, file_bytes) in some order.
Status check_cover(const SafetensorsHeader& header, std::int64_t first_byte,
                   std::int64_t file_bytes, const std::string& name) {
  std::vector<const SafetensorsTensor*> order;
  for (const SafetensorsTensor& t : header.tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::int64_t reached = first_byte;
  for (const SafetensorsTensor* t : order) {
    if (t->begin != reached) {
      return Error{
          "bad-safetensors",
          fmt::format("'{}' starts at byte {} of the data, the tensor before it ends at {}",
                      t->name, t->begin - first_byte, reached - first_byte),
          name, "tensors must follow each other; the file is damaged: write it again"};
    }
    reached = t->end;
  }
  if (reached == file_bytes) return {};
  return Error{"bad-safetensors",
               fmt::format("the last {} bytes belong to no tensor", file_bytes - reached), name,
               "the file is damaged: write or copy it again"};
}

}  // namespace

std::string_view safetensors_dtype_name(DType dtype) {
  for (const auto& [known, name] : kReadDTypes) {
    if (known == dtype) return name;
  }
  return "?";
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view start, std::int64_t file_bytes,
                                                   const std::string& name) {
  BAYPLAN_TRY(length, header_length(start, file_bytes, name));
  BAYPLAN_CHECK(static_cast<std::int64_t>(start.size()) >= kLengthBytes + length,
                "less than the header was read");
  BAYPLAN_TRY(document, parse_json(start.substr(kLengthBytes, static_cast<std::size_t>(length)),
                                   name + ":header"));
  const JsonCursor at(document);
  BAYPLAN_RETURN_IF_ERROR(at.expect_object());
  const std::int64_t first_byte = kLengthBytes + length;
  SafetensorsHeader header;
  for (const std::string& tensor_name : at.field_names()) {
    if (tensor_name == "__metadata__") {
      BAYPLAN_RETURN_IF_ERROR(at.at(tensor_name).expect_object());
      continue;
    }
    BAYPLAN_TRY(tensor,
                read_tensor(at.at(tensor_name), tensor_name, first_byte, file_bytes - first_byte));
    header.tensors.push_back(std::move(tensor));
  }
  BAYPLAN_RETURN_IF_ERROR(check_cover(header, first_byte, file_bytes, name));
  return header;
}

Result<SafetensorsHeader> read_safetensors_header(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return Error{"file-not-found", "cannot open: no such file", path,
                 "check the spelling and the current folder"};
  }
  if (!fs::is_regular_file(status)) {
    return Error{"not-a-file", fs::is_directory(status) ? "is a folder" : "is not a regular file",
                 path, "name a file"};
  }
  const auto file_bytes = static_cast<std::int64_t>(fs::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    return Error{"unreadable-file", "cannot be opened", path, "check the file's permissions"};
  }
  std::string start(static_cast<std::size_t>(std::min(file_bytes, kLengthBytes)), '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  BAYPLAN_TRY(length, header_length(start, file ? file_bytes : 0, path));
  start.resize(static_cast<std::size_t>(kLengthBytes + length));
  file.read(start.data() + kLengthBytes, static_cast<std::streamsize>(length));
  if (!file) {
    return Error{"unreadable-file", "cannot be read to the end of its header", path,
                 "check the file and the disk"};
  }
  return parse_safetensors_header(start, file_bytes, path);
}

}  // namespace bayplan
