// What a new socket starts with: the administrator's files in /etc/rdma/rsocket, which rdma-core's rsockets read, too.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "rsocket/protocol/stream.h"

namespace ucm::rsocket {

struct Settings {
  StreamSizes sizes;
  std::uint16_t inline_size = kInlineDefault;

  // SO_RCVBUF and SO_SNDBUF: twice what the program asks for, as Linux counts it.
  void set_buffer_size(int option, int asked);
  // Options of SOL_RDMA. The caller knows whether it is too late.
  Result<void> set_rdma_option(int name, int value);
  std::optional<int> rdma_option(int name) const;
};

// The value of an option as getsockopt(2) gives it out.
Result<void> store_option(const void* from, socklen_t length, void* value, socklen_t* size);

// Read once.
struct Defaults {
  Settings settings;
  std::uint32_t polling_time_us = kPollingTimeDefault_us;
};
const Defaults& defaults();

}  // namespace ucm::rsocket
