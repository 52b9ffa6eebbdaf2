// What a new socket starts with: the administrator's files in /etc/rdma/rsocket, which rdma-core's rsockets read, too.
#pragma once

#include <cstdint>

#include "rsocket/protocol/stream.h"

namespace ucm::rsocket {

struct Settings {
  StreamSizes sizes;
  std::uint16_t inline_size = kInlineDefault;
};

// Read once.
struct Defaults {
  Settings settings;
  std::uint32_t polling_time_us = kPollingTimeDefault_us;
};
const Defaults& defaults();

}  // namespace ucm::rsocket
