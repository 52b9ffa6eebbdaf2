// Messages that nobody answers, sent again all the same: when one is lost, the peer waits in vain, and nothing that it
// sends brings the message back soon. A peer that has got it drops the others silently.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/deadline_heap.h"
#include "base/hash.h"
#include "base/time.h"
#include "cm/observer.h"
#include "cm/path.h"
#include "cm/slab.h"
#include "wire/mad.h"

namespace ucm::cm {

class LastWords {
 public:
  struct Word {
    Path path{};
    std::array<std::uint8_t, wire::kMadSize> mad{};
    Cause cause{};
    TimeNs wait = 0;               // until the next time, without jitter; then twice as long
    std::uint8_t repetitions = 0;  // left
  };

  // To be sent again at `due`. Without effect when there are too many (limits.h): this only makes good for losses.
  void add(TimeNs due, const Word& word);
  // kNever when there is none.
  TimeNs next_deadline() const { return timers_.next(); }
  // Takes out the first one that is due; next_deadline() has passed.
  Word take();

  std::size_t size() const { return words_.in_use(); }
  void add_to(StateHash& hash) const;

 private:
  Slab<Word> words_;
  DeadlineHeap timers_;
};

}  // namespace ucm::cm
