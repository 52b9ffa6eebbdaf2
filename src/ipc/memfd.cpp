#include "ipc/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace ucm::ipc {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

tl::unexpected<Error> system_failure(const char* what) {
  const int code = errno;
  return fail(code, std::string(what) + ": " + std::generic_category().message(code));
}

Result<std::size_t> sealed_size(int memfd) {
  struct stat status{};
  if (fstat(memfd, &status) != 0) return system_failure("shared memory: fstat");
  const int seals = fcntl(memfd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return fail(EPROTO, "shared memory is not sealed against shrinking");
  return static_cast<std::size_t>(status.st_size);
}

}  // namespace

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

Result<SharedMemory> SharedMemory::map(int memfd, std::size_t size) {
  const Result<std::size_t> actual = sealed_size(memfd);
  if (!actual) return tl::unexpected(actual.error());
  if (*actual != size) {
    return fail(EPROTO, "shared memory has " + std::to_string(*actual) + " bytes, expected " + std::to_string(size));
  }
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (data == MAP_FAILED) return system_failure("shared memory: mmap");
  return SharedMemory(data, size);
}

Result<FileDescriptor> create_memfd(const char* name, std::size_t size) {
  FileDescriptor memfd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd) return system_failure("shared memory: memfd_create");
  if (ftruncate(memfd.get(), static_cast<off_t>(size)) != 0) return system_failure("shared memory: ftruncate");
  if (fcntl(memfd.get(), F_ADD_SEALS, kSizeSeals) != 0) return system_failure("shared memory: sealing");
  return memfd;
}

Result<FileDescriptor> create_sealed_copy(const char* name, Bytes bytes) {
  FileDescriptor memfd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd) return system_failure("shared memory: memfd_create");
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t written = pwrite(memfd.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (written <= 0) return system_failure("shared memory: write");
    done += static_cast<std::size_t>(written);
  }
  if (fcntl(memfd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_WRITE) != 0) return system_failure("shared memory: sealing");
  return memfd;
}

Result<std::string> read_sealed_copy(int memfd, std::size_t size_max) {
  const Result<std::size_t> size = sealed_size(memfd);
  if (!size) return tl::unexpected(size.error());
  if (*size > size_max) return fail(EPROTO, "shared memory holds " + std::to_string(*size) + " bytes, too many");
  std::string text(*size, '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got = pread(memfd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0) return system_failure("shared memory: read");
    if (got == 0) return fail(EPROTO, "shared memory ends early");
    done += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace ucm::ipc
