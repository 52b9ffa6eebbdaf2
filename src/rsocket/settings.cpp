#include "rsocket/settings.h"

#include <rdma/rsocket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>

namespace ucm::rsocket {
namespace {

// The number in a file of the administrator's, within limits; the default without one.
template <class T>
void read_setting(const char* name, T& value, T low, T high) {
  std::ifstream file(std::string("/etc/rdma/rsocket/") + name);
  long long number = 0;
  if (file >> number) value = static_cast<T>(std::clamp<long long>(number, low, high));
}

Defaults read_defaults() {
  Defaults defaults;
  StreamSizes& sizes = defaults.settings.sizes;
  read_setting<std::uint32_t>("polling_time", defaults.polling_time_us, 0, 1'000'000);
  read_setting<std::uint16_t>("inline_default", defaults.settings.inline_size, 0, kQueueSizeMax);
  read_setting<std::uint16_t>("sqsize_default", sizes.send_queue, kQueueSizeMin, kQueueSizeMax);
  read_setting<std::uint16_t>("rqsize_default", sizes.receive_queue, kQueueSizeMin, kQueueSizeMax);
  read_setting<std::uint32_t>("mem_default", sizes.receive_buffer, kBufferSizeMin, kBufferSizeMax);
  read_setting<std::uint32_t>("wmem_default", sizes.send_buffer, kBufferSizeMin, kBufferSizeMax);
  read_setting<std::uint16_t>("iomap_size", sizes.iomap, 0, 0x7FFF);
  return defaults;
}

std::uint16_t queue_size(int asked) {
  return static_cast<std::uint16_t>(std::clamp<int>(asked, kQueueSizeMin, kQueueSizeMax));
}

}  // namespace

void Settings::set_buffer_size(int option, int asked) {
  const std::int64_t doubled = std::int64_t{asked} * 2;
  std::uint32_t& size = option == SO_RCVBUF ? sizes.receive_buffer : sizes.send_buffer;
  size = static_cast<std::uint32_t>(std::clamp<std::int64_t>(doubled, kBufferSizeMin, kBufferSizeMax));
}

Result<void> Settings::set_rdma_option(int name, int value) {
  switch (name) {
    case RDMA_SQSIZE:
      sizes.send_queue = queue_size(value);
      return {};
    case RDMA_RQSIZE:
      sizes.receive_queue = queue_size(value);
      return {};
    case RDMA_INLINE:
      inline_size = static_cast<std::uint16_t>(std::clamp<int>(value, 0, kQueueSizeMax));
      return {};
    case RDMA_IOMAPSIZE:
      sizes.iomap = rounded_iomap_size(value);
      return {};
    case RDMA_ROUTE:
      return fail(EOPNOTSUPP, "the route comes from the host's routing table");
    default:
      return fail(ENOTSUP, "unknown option of RDMA");
  }
}

std::optional<int> Settings::rdma_option(int name) const {
  switch (name) {
    case RDMA_SQSIZE:
      return sizes.send_queue;
    case RDMA_RQSIZE:
      return sizes.receive_queue;
    case RDMA_INLINE:
      return inline_size;
    case RDMA_IOMAPSIZE:
      return sizes.iomap;
    default:
      return std::nullopt;
  }
}

Result<void> store_option(const void* from, socklen_t length, void* value, socklen_t* size) {
  if (value == nullptr || size == nullptr) return fail(EFAULT, "no place for an option's value");
  *size = std::min(*size, length);
  std::memcpy(value, from, *size);
  return {};
}

const Defaults& defaults() {
  // Not the initialization of a static variable: a fork in the middle of that leaves the child waiting for its end.
  static std::once_flag once;
  static Defaults read;
  std::call_once(once, [] { read = read_defaults(); });
  return read;
}

}  // namespace ucm::rsocket
