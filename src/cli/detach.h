// How ucmd becomes a daemon.
#pragma once

#include <string>

#include "base/result.h"
#include "ipc/file_descriptor.h"

namespace ucm::cli {

// The way back to whoever started the daemon, until the start has succeeded or failed. Without a starter that waits,
// the words go to standard error.
class StartReport {
 public:
  StartReport() = default;
  explicit StartReport(ipc::FileDescriptor pipe) : pipe_(std::move(pipe)) {}
  void succeeded();
  void failed(const std::string& why);

 private:
  ipc::FileDescriptor pipe_;
};

// Closes every descriptor but the standard ones: a daemon that a program started must not keep the program's files,
// pipes and locks.
void close_inherited_descriptors();

// Goes into the background: the parent waits for the report, says what went wrong on standard error and exits with 0 or
// 1; the child, in a session of its own, in / and with its standard descriptors on /dev/null, returns.
Result<StartReport> detach();

}  // namespace ucm::cli
