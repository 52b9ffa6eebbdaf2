// How ucmd wakes a program: through a descriptor that is readable while there is a token in it. A token is eight bytes;
// the program takes it with read(), and may put one itself.
//
// Both sides have the same open file, and with it the same flags. A program can therefore fill an eventfd, take
// O_NONBLOCK away, and let whoever writes next wait for ever. Where that would matter, the descriptor is a datagram
// socket that is connected to itself: to a reader it is the same, but each send says for itself that it does not wait.
#pragma once

#include <utility>

#include "base/result.h"
#include "ipc/file_descriptor.h"

namespace ucm::ipc {

class TokenWriter {
 public:
  enum class Reader {
    kTrusted,    // an eventfd, the cheaper one
    kUntrusted,  // the socket
  };
  // Whether read() waits for a token.
  enum class Reading { kBlocks, kReturns };

  TokenWriter() = default;
  // Close-on-exec.
  static Result<TokenWriter> create(Reader reader, Reading reading);
  // Goes on with a descriptor that was made for the same reader.
  TokenWriter(Reader reader, FileDescriptor descriptor) : reader_(reader), descriptor_(std::move(descriptor)) {}

  int get() const { return descriptor_.get(); }
  explicit operator bool() const { return static_cast<bool>(descriptor_); }

  // Never waits for an untrusted reader. One that has left no room for a token gets none.
  void put() const;

 private:
  Reader reader_ = Reader::kUntrusted;
  FileDescriptor descriptor_;
};

}  // namespace ucm::ipc
