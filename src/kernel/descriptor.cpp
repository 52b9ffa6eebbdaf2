#include "kernel/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "ipc/file_descriptor.h"

namespace ucm::kernel {
namespace {

constexpr const char* kPath = "/dev/infiniband/rdma_cm";

class OpenFile final : public Descriptor {
 public:
  explicit OpenFile(ipc::FileDescriptor file) : file_(std::move(file)) {}
  int fd() const override { return file_.get(); }
  int submit(Bytes command) override { return write(fd(), command.data(), command.size()) < 0 ? errno : 0; }

 private:
  ipc::FileDescriptor file_;
};

}  // namespace

Result<std::unique_ptr<Descriptor>> open_rdma_cm() {
  // Only waiting for events can block, and that is done with poll().
  ipc::FileDescriptor file(open(kPath, O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (file.get() >= 0) return std::make_unique<OpenFile>(std::move(file));
  const std::string why = std::generic_category().message(errno);
  return fail(ENODEV, std::string(kPath) + ": " + why + " (the kernel module rdma_ucm makes it)");
}

}  // namespace ucm::kernel
