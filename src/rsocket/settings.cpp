#include "rsocket/settings.h"

#include <algorithm>
#include <fstream>
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

}  // namespace

const Defaults& defaults() {
  static const Defaults read = read_defaults();
  return read;
}

}  // namespace ucm::rsocket
