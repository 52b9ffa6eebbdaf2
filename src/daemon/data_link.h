// The node's end of a session's data link: received packets for the QP numbers of one program.
#pragma once

#include <array>

#include "base/result.h"
#include "ipc/file_descriptor.h"
#include "ipc/memfd.h"
#include "ipc/ring.h"
#include "ipc/token_writer.h"
#include "wire/datagram.h"

namespace ucm::daemon {

class DataLink {
 public:
  static Result<DataLink> create(ipc::TokenWriter::Reader reader);
  // Goes on with one of a ucmd that has died: its descriptors, in the order of descriptors().
  static Result<DataLink> resume(ipc::FileDescriptor memory, ipc::TokenWriter tokens);

  // For the program: memory, and for tokens.
  std::array<int, 2> descriptors() const { return {memfd_.get(), tokens_.get()}; }
  void close_memory_descriptor() { memfd_.reset(); }

  enum class Delivery { kDelivered, kFull, kTooLong, kBroken };
  // Wakes the program when it sleeps.
  Delivery deliver(const wire::DatagramInfo& info, Bytes payload);

 private:
  DataLink() = default;

  ipc::FileDescriptor memfd_;
  ipc::TokenWriter tokens_;
  ipc::SharedMemory memory_;
  ipc::RingProducer packets_;
};

}  // namespace ucm::daemon
