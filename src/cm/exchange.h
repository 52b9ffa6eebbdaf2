// A message that is repeated until its answer comes: REQ, REP or DREQ.
#pragma once

#include <array>
#include <cstdint>

#include "base/time.h"
#include "cm/peers.h"
#include "wire/mad.h"

namespace ucm::cm {

struct Exchange {
  std::array<std::uint8_t, wire::kMadSize> mad{};
  TimeNs sent_at = 0;     // the first time
  TimeNs give_up_at = 0;  // the end of the budget
  TimeNs wait = 0;        // before the next repetition, without jitter
  Peers::Index peer = Peers::kNone;
  std::uint8_t repetitions = 0;
};

}  // namespace ucm::cm
