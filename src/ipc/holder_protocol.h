// What ucmd and ucm-holder say to one another: fixed records on a SOCK_SEQPACKET pair, descriptors beside them. The
// holder understands nothing of what it keeps. A wire format: one holder serves every ucmd that follows the first.
#pragma once

#include <cstdint>
#include <type_traits>

namespace ucm::ipc {

inline constexpr std::uint32_t kHolderMagic = 0x31484355;  // "UCH1" in memory

enum class HolderCall : std::uint32_t {
  kHold = 1,  // key, present: keep these descriptors, instead of what was under the key. Also the way back
  kRelease,   // key
  kAll,       // from the holder, after the last kHold: a successor has everything
  kEnd,       // ucmd leaves in good order: so does the holder
};

struct HolderMessage {
  std::uint32_t magic = kHolderMagic;
  HolderCall call{};
  std::uint64_t key = 0;
  std::uint32_t present = 0;  // a bit for each of up to four places that has a descriptor, in the order passed
  std::uint32_t reserved = 0;
};
static_assert(sizeof(HolderMessage) == 24 && std::is_trivially_copyable_v<HolderMessage>);

// Where a successor finds its end of the pair.
inline constexpr int kHolderDescriptor = 3;

}  // namespace ucm::ipc
