// Writes safetensors files: 8 bytes of header length, a JSON header, then the tensors' bytes. Data
// starts at a multiple of 4 KiB. The file appears under its name only when it is whole and on
// disk. Not for reading (planner/formats/safetensors_header.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "executor/checkpoint/gather_state.h"

namespace bayplan::exec {

class SafetensorsWriter {
 public:
  /// Creates `path`.part and writes the header. `tensors`: all that will be added, in that order;
  /// their bytes are not read. Throws std::runtime_error naming the file when it cannot.
  SafetensorsWriter(std::string path, const std::vector<LogicalTensor>& tensors,
                    const std::map<std::string, std::string>& metadata);
  /// Removes the partial file unless finish() was called.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// The next tensor, which must be the next of the constructor's list.
  void add(const LogicalTensor& tensor);
  /// Flushes to disk and gives the file its name.
  void finish();

 private:
  void write(const void* data, std::size_t bytes);
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_;
  std::string partial_;
  std::vector<LogicalTensor> tensors_;
  std::size_t next_ = 0;
  int file_ = -1;
};

/// safetensors' name of an element type ("F32").
std::string safetensors_dtype(DType dtype);

}  // namespace bayplan::exec
