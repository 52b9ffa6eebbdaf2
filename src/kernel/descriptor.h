// The kernel's rdma_cm as a descriptor: each call is one write(2).
#pragma once

#include <memory>

#include "base/bytes.h"
#include "base/result.h"

namespace ucm::kernel {

class Descriptor {
 public:
  virtual ~Descriptor() = default;
  // Readable while events wait.
  virtual int fd() const = 0;
  // Makes one call; answers are written to where the command points. Returns 0 or an errno value: EACCES also when the
  // caller's credentials are not those the descriptor was opened with.
  virtual int submit(Bytes command) = 0;
};

// /dev/infiniband/rdma_cm, with the credentials of the calling thread. ENODEV says what is missing.
Result<std::unique_ptr<Descriptor>> open_rdma_cm();

}  // namespace ucm::kernel
