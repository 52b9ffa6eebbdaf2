// Memory shared through a file descriptor whose size cannot change any more.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "ipc/file_descriptor.h"

namespace ucm::ipc {

// A mapping, unmapped with the object. Readable and writable, shared.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Maps a memfd received from the other side. EPROTO when it has another size or could still be shrunk, which would
  // turn an access into SIGBUS.
  static Result<SharedMemory> map(int memfd, std::size_t size);

  void* data() const { return data_; }
  std::uint8_t* at(std::size_t offset) const { return static_cast<std::uint8_t*>(data_) + offset; }
  std::size_t size() const { return size_; }

 private:
  SharedMemory(void* data, std::size_t size) : data_(data), size_(size) {}
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// A zero-filled memfd of `size` bytes, sealed against shrinking, growing and further seals; close-on-exec.
Result<FileDescriptor> create_memfd(const char* name, std::size_t size);

// A memfd holding `bytes`, sealed against every change; and its reader, which takes at most `size_max` bytes.
Result<FileDescriptor> create_sealed_copy(const char* name, Bytes bytes);
Result<std::string> read_sealed_copy(int memfd, std::size_t size_max);

}  // namespace ucm::ipc
