#include "ipc/device_list.h"

#include <algorithm>
#include <cerrno>

#include "ipc/control_messages.h"

namespace ucm::ipc {
namespace {

template <class T>
void append(std::vector<std::uint8_t>& out, const T& record) {
  const Bytes bytes = bytes_of(record);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <class T>
bool take(Bytes& bytes, T& record) {
  if (bytes.size() < sizeof record) return false;
  std::memcpy(&record, bytes.data(), sizeof record);
  bytes = bytes.subspan(sizeof record);
  return true;
}

DeviceRecord record_of(const host::Device& device) {
  DeviceRecord record{.ifindex = device.ifindex,
                      .mtu = device.mtu,
                      .guid = device.guid,
                      .mac = device.mac,
                      .loopback = device.loopback,
                      .running = device.running};
  set_text(record.interface_name, device.interface_name);
  record.address_count = static_cast<std::uint32_t>(std::min(device.addresses.size(), kAddressesPerDeviceMax));
  return record;
}

}  // namespace

std::vector<std::uint8_t> emit_devices(const std::vector<host::Device>& devices) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i < std::min(devices.size(), kDevicesMax); ++i) {
    const DeviceRecord record = record_of(devices[i]);
    append(out, record);
    for (std::uint32_t j = 0; j < record.address_count; ++j) {
      const host::DeviceAddress& address = devices[i].addresses[j];
      append(out, AddressRecord{.address = address.address.bytes, .prefix_length = address.prefix_length});
    }
  }
  return out;
}

Result<std::vector<host::Device>> parse_devices(Bytes bytes) {
  std::vector<host::Device> devices;
  while (!bytes.empty()) {
    DeviceRecord record;
    if (!take(bytes, record) || record.address_count > kAddressesPerDeviceMax || devices.size() == kDevicesMax) {
      return fail(EPROTO, "malformed device list");
    }
    record.interface_name.back() = '\0';
    host::Device device{.ifindex = record.ifindex,
                        .interface_name = text_of(record.interface_name),
                        .mtu = record.mtu,
                        .guid = record.guid,
                        .mac = record.mac,
                        .loopback = record.loopback != 0,
                        .running = record.running != 0,
                        .addresses = {}};
    for (std::uint32_t i = 0; i < record.address_count; ++i) {
      AddressRecord address;
      if (!take(bytes, address)) return fail(EPROTO, "malformed device list");
      device.addresses.push_back({.address = {address.address}, .prefix_length = address.prefix_length});
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace ucm::ipc
