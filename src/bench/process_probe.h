// What a process has used up so far: CPU time, system calls, memory. Asked from outside, so that it costs the process
// nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "net/owned_fd.h"

namespace ucm::bench {

// Each only where this user may see it.
struct Usage {
  std::optional<TimeNs> cpu;
  std::optional<std::uint64_t> system_calls;
  std::optional<std::uint64_t> memory_bytes;  // proportional set size: what is shared counts in shares
};

class ProcessProbe {
 public:
  // System calls count from here on, those of threads and processes started later, too (privileged: a tracepoint).
  ProcessProbe(std::string name, pid_t pid);

  const std::string& name() const { return name_; }
  Usage usage() const;

 private:
  std::string name_;
  pid_t pid_;
  std::vector<net::OwnedFd> counters_;  // one per thread that there was
};

}  // namespace ucm::bench
