// Memory regions and windows: the only application memory the device ever touches. Every access names a protection
// domain, a key, a range and a right, and is checked on its own; nothing remembers a pointer across calls.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "base/bytes.h"
#include "base/random.h"
#include "base/result.h"
#include "roce/engine.h"

namespace ucm::roce {

enum class ScatterResult : std::uint8_t { kDone, kTooLong, kProtection };

class MemoryTable {
 public:
  // `key` makes the keys of regions unpredictable.
  explicit MemoryTable(const RandomKey& key) : random_(key) {}

  // EINVAL: remote write or atomic access without local write (IBTA 10.6.3.1), a range that wraps, no address.
  // ENOMEM: too many regions.
  Result<MrKeys> add(const MrParams& params);
  // Gives a region other parameters; errors are those of add(), and EBUSY. Returns the domain that it was in.
  Result<PdId> change(std::uint32_t key, const MrParams& params);
  // EINVAL when there is no region with this key.
  Result<MrParams> params_of(std::uint32_t key) const;
  // The domain of the removed region; EINVAL when there is none with this key, EBUSY while a window is bound to it.
  Result<PdId> remove(std::uint32_t key);

  // The bytes of [address, address + length) with all rights in `access`; nullptr when that is not allowed.
  std::uint8_t* find(PdId pd, std::uint32_t key, std::uint64_t address, std::uint64_t length,
                     std::uint32_t access) const;

  // The same for a peer of the QP `qpn`, by the key of a region or of a window.
  std::uint8_t* find_remote(PdId pd, Qpn qpn, std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                            std::uint32_t access) const;

  // A window's rkey; ENOMEM: too many.
  Result<std::uint32_t> add_window(PdId pd, WindowType type);
  Result<PdId> remove_window(std::uint32_t rkey);
  // False when the window, the region, the range or a right is not to be had so. IBTA 10.6.7.2.
  bool bind(PdId pd, Qpn qpn, const WindowBinding& binding);

  // Withdraws every right of the region or of the type 2 window until it is deregistered or bound again. False when
  // there is no such valid region, or a `remote` peer asks and the region grants it nothing anyway.
  bool invalidate_local(PdId pd, std::uint32_t key);
  bool invalidate_remote(PdId pd, std::uint32_t key);

  // Whether every element of the list may be accessed.
  bool allows(PdId pd, std::span<const Sge> sges, std::uint32_t access) const;
  // Copies out.size() bytes from position `offset` of the list; false when a key or range is wrong.
  bool gather(PdId pd, std::span<const Sge> sges, std::uint64_t offset, MutableBytes out) const;
  // Copies `bytes` to position `offset` of the list.
  ScatterResult scatter(PdId pd, std::span<const Sge> sges, std::uint64_t offset, Bytes bytes) const;

 private:
  struct Region {
    MrParams params;
    bool valid = true;
  };
  struct Window {
    PdId pd{};
    WindowType type{};
    Qpn qpn = 0;              // of type 2: who bound it
    WindowBinding binding{};  // of length 0: bound to nothing
  };
  std::uint32_t make_key();
  const Window* find_window(PdId pd, std::uint32_t rkey) const;
  bool is_bound_to(std::uint32_t lkey) const;
  bool unbind(PdId pd, std::uint32_t rkey);

  Random random_;
  std::unordered_map<std::uint32_t, Region> regions_;
  std::unordered_map<std::uint32_t, Window> windows_;  // by rkey without its last byte, which the application chooses
};

}  // namespace ucm::roce
