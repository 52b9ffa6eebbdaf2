// A message that is repeated until its answer comes: REQ, REP or DREQ.
#pragma once

#include <array>
#include <cstdint>

#include "base/time.h"
#include "cm/slab_list.h"
#include "wire/mad.h"

namespace ucm::cm {

struct Exchange {
  std::array<std::uint8_t, wire::kMadSize> mad{};
  TimeNs sent_at = 0;               // the first time
  TimeNs give_up_at = 0;            // the end of the budget
  TimeNs wait = 0;                  // before the next repetition, without jitter
  std::uint32_t slot = 0;           // of the connection
  std::uint32_t peer = UINT32_MAX;  // in Peers; UINT32_MAX: not known
  std::uint8_t repetitions = 0;
  bool in_flight = false;  // a REQ neither answered nor repeated yet
  Link link{};             // while a REQ is held back
};

}  // namespace ucm::cm
