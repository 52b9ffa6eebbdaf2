// The devices of a node as bytes: per device a DeviceRecord followed by its AddressRecords.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "host/device.h"

namespace ucm::ipc {

struct DeviceRecord {
  std::uint32_t ifindex = 0;
  std::uint32_t mtu = 0;
  std::uint64_t guid = 0;
  std::array<std::uint8_t, 6> mac{};
  std::uint8_t loopback = 0;
  std::uint8_t running = 0;
  std::array<char, 16> interface_name{};
  std::uint32_t address_count = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(DeviceRecord) == 48);

struct AddressRecord {
  std::array<std::uint8_t, 16> address{};
  std::uint8_t prefix_length = 0;
  std::array<std::uint8_t, 3> reserved{};
};
static_assert(sizeof(AddressRecord) == 20);

// A host has at most this many of each in a list; more are left out.
inline constexpr std::size_t kDevicesMax = 1024;
inline constexpr std::size_t kAddressesPerDeviceMax = 256;
inline constexpr std::size_t kDeviceListSizeMax =
    kDevicesMax * (sizeof(DeviceRecord) + kAddressesPerDeviceMax * sizeof(AddressRecord));

std::vector<std::uint8_t> emit_devices(const std::vector<host::Device>& devices);
// EPROTO when the bytes do not end where the records say.
Result<std::vector<host::Device>> parse_devices(Bytes bytes);

}  // namespace ucm::ipc
