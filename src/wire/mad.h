// The MAD header and CM messages' attribute IDs. IBTA 13.4, 12.6.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"

namespace ucm::wire {

inline constexpr std::size_t kMadSize = 256;
inline constexpr std::size_t kMadPayloadSize = 232;

inline constexpr std::uint8_t kMadBaseVersion = 1;
inline constexpr std::uint8_t kMadClassCm = 0x07;
inline constexpr std::uint8_t kMadClassVersionCm = 2;
inline constexpr std::uint8_t kMadMethodGet = 0x01;
inline constexpr std::uint8_t kMadMethodSend = 0x03;
inline constexpr std::uint8_t kMadMethodGetResp = 0x81;

inline constexpr std::uint32_t kGsiQpn = 1;
inline constexpr std::uint32_t kGsiQkey = 0x80010000;

enum class Attribute : std::uint16_t {
  kClassPortInfo = 0x0001,
  kReq = 0x0010,
  kMra = 0x0011,
  kRej = 0x0012,
  kRep = 0x0013,
  kRtu = 0x0014,
  kDreq = 0x0015,
  kDrep = 0x0016,
  kSidrReq = 0x0017,
  kSidrRep = 0x0018,
  kLap = 0x0019,
  kApr = 0x001A,
};
// The specification's name of a CM message, as "REQ"; empty for anything else.
std::string_view name(Attribute attribute);

struct MadHeader {
  static constexpr std::size_t kSize = 24;
  static constexpr std::size_t kAttributeOffset = 16;
  std::uint8_t base_version = kMadBaseVersion;
  std::uint8_t management_class = kMadClassCm;
  std::uint8_t class_version = kMadClassVersionCm;
  std::uint8_t method = kMadMethodSend;
  std::uint16_t status = 0;
  std::uint16_t class_specific = 0;
  std::uint64_t transaction_id = 0;
  Attribute attribute{};
  std::uint16_t reserved = 0;            // 0 on the wire but between UCM peers (cm/peers.h)
  std::uint32_t attribute_modifier = 0;  // REQ, REP, SIDR_REP: ECE options

  static std::optional<MadHeader> parse(Bytes bytes);
  void emit(MutableBytes out) const;
};

}  // namespace ucm::wire
