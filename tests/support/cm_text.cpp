#include "support/cm_text.h"

#include <cstdarg>
#include <cstdio>

#include "support/with_cm_message.h"

namespace ucm::test {
namespace {

using namespace wire;

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(line, sizeof line, pattern, arguments);
  va_end(arguments);
  return line;
}

std::string text(const Req& m) {
  return format("REQ local_comm_id=0x%08x service_id=0x%llx qpn=0x%x psn=0x%x transport=%d", m.local_comm_id,
                static_cast<unsigned long long>(m.service_id), m.local_qpn, m.starting_psn,
                static_cast<int>(m.transport_service));
}
std::string text(const Rep& m) {
  return format("REP local_comm_id=0x%08x remote_comm_id=0x%08x qpn=0x%x psn=0x%x", m.local_comm_id, m.remote_comm_id,
                m.local_qpn, m.starting_psn);
}
std::string text(const Rtu& m) {
  return format("RTU local_comm_id=0x%08x remote_comm_id=0x%08x", m.local_comm_id, m.remote_comm_id);
}
std::string text(const Mra& m) {
  return format("MRA local_comm_id=0x%08x remote_comm_id=0x%08x message=%d service_timeout=%d", m.local_comm_id,
                m.remote_comm_id, static_cast<int>(m.message), m.service_timeout);
}
std::string text(const Rej& m) {
  return format("REJ local_comm_id=0x%08x remote_comm_id=0x%08x message=%d reason=%d", m.local_comm_id,
                m.remote_comm_id, static_cast<int>(m.message), static_cast<int>(m.reason));
}
std::string text(const Dreq& m) {
  return format("DREQ local_comm_id=0x%08x remote_comm_id=0x%08x qpn=0x%x", m.local_comm_id, m.remote_comm_id,
                m.remote_qpn);
}
std::string text(const Drep& m) {
  return format("DREP local_comm_id=0x%08x remote_comm_id=0x%08x", m.local_comm_id, m.remote_comm_id);
}
std::string text(const SidrReq& m) {
  return format("SIDR_REQ request_id=0x%08x service_id=0x%llx", m.request_id,
                static_cast<unsigned long long>(m.service_id));
}
std::string text(const SidrRep& m) {
  return format("SIDR_REP request_id=0x%08x status=%d qpn=0x%x qkey=0x%x", m.request_id, static_cast<int>(m.status),
                m.qpn, m.qkey);
}
std::string text(const Lap& m) {
  return format("LAP local_comm_id=0x%08x remote_comm_id=0x%08x qpn=0x%x", m.local_comm_id, m.remote_comm_id,
                m.remote_qpn);
}
std::string text(const Apr& m) {
  return format("APR local_comm_id=0x%08x remote_comm_id=0x%08x status=%d", m.local_comm_id, m.remote_comm_id,
                m.status);
}

}  // namespace

std::string address_text(const IpAddress& address) {
  const auto& b = address.bytes;
  if (address.is_ipv4()) return format("%d.%d.%d.%d", b[12], b[13], b[14], b[15]);
  std::string text;
  for (std::size_t i = 0; i < b.size(); i += 2) text += format(i == 0 ? "%x" : ":%x", load_be16(&b[i]));
  return text;
}

std::string cm_text(std::span<const std::uint8_t, kMadSize> mad) {
  const MadHeader header = *MadHeader::parse(mad);
  const Bytes payload = mad.subspan(MadHeader::kSize);
  std::string line;
  const bool known = with_cm_message(header.attribute, payload, [&](const auto& message) { line = text(message); });
  return known ? line
               : format("MAD class=0x%x attribute=0x%x", header.management_class, static_cast<int>(header.attribute));
}

}  // namespace ucm::test
