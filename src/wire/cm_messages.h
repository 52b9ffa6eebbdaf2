// The CM messages of IBTA 12.6 as plain structs. parse() and emit() work on the 232-byte MAD payload (MAD byte 24 on):
// parse() takes exactly kMadPayloadSize bytes and returns nullopt for another size; every bit pattern of that size
// parses. emit() writes all 232 bytes, reserved ones as zero. Multi-bit fields hold their value right-aligned; emit()
// checks (UCM_CHECK) that values fit their fields.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "wire/address.h"
#include "wire/mad.h"

namespace ucm::wire {

template <std::size_t N>
using PrivateData = std::array<std::uint8_t, N>;

inline constexpr std::size_t kReqPrivateDataSize = 92;
inline constexpr std::size_t kRepPrivateDataSize = 196;
inline constexpr std::size_t kRejPrivateDataSize = 148;
inline constexpr std::size_t kAriSize = 72;

enum class TransportService : std::uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };
inline constexpr std::uint8_t kExtendedXrc = 1;  // the extended transport type that exists

// MRA and REJ name the message they answer.
enum class MessageKind : std::uint8_t { kReq = 0, kRep = 1, kOther = 2 };

enum class RejReason : std::uint16_t {
  kNoQp = 1,
  kNoEec = 2,
  kNoResources = 3,
  kTimeout = 4,
  kUnsupported = 5,
  kInvalidCommId = 6,
  kInvalidCommInstance = 7,
  kInvalidServiceId = 8,
  kInvalidTransportType = 9,
  kStaleConnection = 10,
  kInvalidGid = 12,
  kInvalidAlternateGid = 18,
  kInvalidMtu = 26,
  kInsufficientResponderResources = 27,
  kConsumerDefined = 28,
  kVendorOptionNotSupported = 35,
};

struct ReqPath {
  std::uint16_t local_lid = 0;
  std::uint16_t remote_lid = 0;
  IpAddress local_gid{};
  IpAddress remote_gid{};
  std::uint32_t flow_label = 0;  // 20 bit
  std::uint8_t packet_rate = 0;  // 6 bit
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t sl = 0;  // 4 bit
  bool subnet_local = false;
  std::uint8_t local_ack_timeout = 0;  // 5 bit exponent of 4.096 us
};

struct Req {
  static constexpr Attribute kAttribute = Attribute::kReq;
  std::uint32_t local_comm_id = 0;
  std::uint32_t vendor_id = 0;  // ECE, 24 bit
  std::uint64_t service_id = 0;
  std::uint64_t local_ca_guid = 0;
  std::uint32_t local_qkey = 0;
  std::uint32_t local_qpn = 0;  // 24 bit
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint32_t local_eecn = 0;
  std::uint32_t remote_eecn = 0;
  std::uint8_t remote_cm_response_timeout = 0;  // 5 bit
  TransportService transport_service = TransportService::kRc;
  bool end_to_end_flow_control = false;
  std::uint32_t starting_psn = 0;              // 24 bit: the first PSN the receiver of this REQ sends with
  std::uint8_t local_cm_response_timeout = 0;  // 5 bit
  std::uint8_t retry_count = 0;                // 3 bit
  std::uint16_t pkey = 0;
  std::uint8_t path_mtu = 0;  // 1 = 256 .. 5 = 4096
  bool rdc_exists = false;
  std::uint8_t rnr_retry_count = 0;  // 3 bit
  std::uint8_t max_cm_retries = 0;   // 4 bit
  bool srq = false;
  std::uint8_t extended_transport_type = 0;  // 3 bit
  ReqPath primary{};
  ReqPath alternate{};  // present when alternate.local_lid != 0
  PrivateData<kReqPrivateDataSize> private_data{};

  static std::optional<Req> parse(Bytes payload);
  void emit(MutableBytes payload) const;
};

struct Rep {
  static constexpr Attribute kAttribute = Attribute::kRep;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint32_t local_qkey = 0;
  std::uint32_t local_qpn = 0;
  std::uint32_t vendor_id = 0;  // ECE, 24 bit, split over three bytes on the wire
  std::uint32_t local_eecn = 0;
  std::uint32_t starting_psn = 0;  // the first PSN the active side sends with
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t target_ack_delay = 0;   // 5 bit
  std::uint8_t failover_accepted = 0;  // 2 bit
  bool end_to_end_flow_control = false;
  std::uint8_t rnr_retry_count = 0;  // 3 bit
  bool srq = false;
  std::uint64_t local_ca_guid = 0;
  PrivateData<kRepPrivateDataSize> private_data{};

  static std::optional<Rep> parse(Bytes payload);
  void emit(MutableBytes payload) const;
};

struct Rtu {
  static constexpr Attribute kAttribute = Attribute::kRtu;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  PrivateData<224> private_data{};
  static std::optional<Rtu> parse(Bytes payload);
  void emit(MutableBytes payload) const;
};

struct Mra {
  static constexpr Attribute kAttribute = Attribute::kMra;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  MessageKind message = MessageKind::kReq;
  std::uint8_t service_timeout = 0;  // 5 bit
  PrivateData<222> private_data{};
  static std::optional<Mra> parse(Bytes payload);
  void emit(MutableBytes payload) const;
};

struct Rej {
  static constexpr Attribute kAttribute = Attribute::kRej;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  MessageKind message = MessageKind::kReq;
  std::uint8_t ari_length = 0;  // 7 bit, bytes of `ari` in use
  RejReason reason{};
  std::array<std::uint8_t, kAriSize> ari{};
  PrivateData<kRejPrivateDataSize> private_data{};
  static std::optional<Rej> parse(Bytes payload);
  void emit(MutableBytes payload) const;
};

struct Dreq {
  static constexpr Attribute kAttribute = Attribute::kDreq;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint32_t remote_qpn = 0;  // the receiver's QPN
  PrivateData<220> private_data{};
  static std::optional<Dreq> parse(Bytes payload);
  void emit(MutableBytes payload) const;
};

struct Drep {
  static constexpr Attribute kAttribute = Attribute::kDrep;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  PrivateData<224> private_data{};
  static std::optional<Drep> parse(Bytes payload);
  void emit(MutableBytes payload) const;
};

struct SidrReq {
  static constexpr Attribute kAttribute = Attribute::kSidrReq;
  std::uint32_t request_id = 0;
  std::uint16_t pkey = 0;
  std::uint64_t service_id = 0;
  PrivateData<216> private_data{};
  static std::optional<SidrReq> parse(Bytes payload);
  void emit(MutableBytes payload) const;
};

enum class SidrStatus : std::uint8_t {
  kSuccess = 0,
  kUnsupportedServiceId = 1,
  kRejected = 2,
  kNoQp = 3,
  kRedirect = 4,
  kUnsupportedVersion = 5,
};

struct SidrRep {
  static constexpr Attribute kAttribute = Attribute::kSidrRep;
  std::uint32_t request_id = 0;
  SidrStatus status = SidrStatus::kSuccess;
  std::uint8_t info_length = 0;
  std::uint32_t vendor_id = 0;  // 24 bit, split on the wire
  std::uint32_t qpn = 0;
  std::uint64_t service_id = 0;
  std::uint32_t qkey = 0;
  std::array<std::uint8_t, 72> info{};
  PrivateData<136> private_data{};
  static std::optional<SidrRep> parse(Bytes payload);
  void emit(MutableBytes payload) const;
};

struct Lap {
  static constexpr Attribute kAttribute = Attribute::kLap;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint32_t remote_qpn = 0;
  std::uint8_t remote_cm_response_timeout = 0;  // 5 bit
  ReqPath alternate{};
  PrivateData<168> private_data{};
  static std::optional<Lap> parse(Bytes payload);
  void emit(MutableBytes payload) const;
};

struct Apr {
  static constexpr Attribute kAttribute = Attribute::kApr;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint8_t info_length = 0;
  std::uint8_t status = 0;
  std::array<std::uint8_t, 72> info{};
  PrivateData<148> private_data{};
  static std::optional<Apr> parse(Bytes payload);
  void emit(MutableBytes payload) const;
};

}  // namespace ucm::wire
