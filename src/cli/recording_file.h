// Recordings as files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "ipc/file_descriptor.h"
#include "recording/records.h"

namespace ucm::cli {

// All of a file.
Result<std::vector<std::uint8_t>> read_file(const std::string& path);

class RecordingWriter {
 public:
  // For its owner alone to read. Replaces what is there.
  static Result<RecordingWriter> create(const std::string& path, const recording::Header& header);
  // Whole records.
  Result<void> append(Bytes records);
  // With the last record.
  Result<void> finish();
  std::uint64_t size() const { return size_; }

 private:
  RecordingWriter(std::string path, ipc::FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  ipc::FileDescriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace ucm::cli
