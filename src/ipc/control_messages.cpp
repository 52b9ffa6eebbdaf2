#include "ipc/control_messages.h"

#include <cerrno>

namespace ucm::ipc {
namespace {

Result<ControlHeader> parse_header(Bytes message) {
  ControlHeader header;
  if (message.size() < sizeof header) return fail(EPROTO, "control message too short");
  std::memcpy(&header, message.data(), sizeof header);
  if (header.magic != kControlMagic) return fail(EPROTO, "not a UCM control message");
  if (header.size != message.size()) return fail(EPROTO, "control message with a wrong size");
  if (header.version != kProtocolVersion) {
    return fail(EPROTONOSUPPORT, "protocol version " + std::to_string(header.version) + ", this side speaks " +
                                     std::to_string(kProtocolVersion));
  }
  const auto call = static_cast<std::uint16_t>(header.call);
  if (call < kControlCallFirst || call > kControlCallLast) return fail(EPROTO, "unknown control call");
  return header;
}

template <class T>
Result<T> parse_message(Bytes message) {
  const Result<ControlHeader> header = parse_header(message);
  if (!header) return tl::unexpected(header.error());
  T parsed;
  if (message.size() != sizeof parsed) return fail(EPROTO, "control message with a wrong size");
  std::memcpy(&parsed, message.data(), sizeof parsed);
  return parsed;
}

}  // namespace

ControlRequest make_request(ControlCall call, std::uint32_t sequence) {
  ControlRequest request;
  request.header = {.call = call, .size = sizeof request, .sequence = sequence};
  return request;
}

ControlReply make_reply(const ControlRequest& request) {
  ControlReply reply;
  reply.header = {.call = request.header.call, .size = sizeof reply, .sequence = request.header.sequence};
  return reply;
}

void set_error(ControlReply& reply, int code, std::string_view message) {
  reply.error = code;
  set_text(reply.message, message);
}

Result<ControlRequest> parse_request(Bytes message) {
  Result<ControlRequest> request = parse_message<ControlRequest>(message);
  if (request && request->role != Role::kTool && request->role != Role::kProgram) {
    return fail(EPROTO, "unknown role in a control message");
  }
  return request;
}

Result<ControlReply> parse_reply(Bytes message) {
  Result<ControlReply> reply = parse_message<ControlReply>(message);
  if (!reply) return reply;
  reply->daemon_version.back() = '\0';
  reply->message.back() = '\0';
  if (reply->descriptor_count > kDescriptorsMax || reply->qpn_count > kQpnBlockSize || reply->has_ipv4 > 1 ||
      reply->has_ipv6 > 1) {
    return fail(EPROTO, "control reply with values out of range");
  }
  return reply;
}

}  // namespace ucm::ipc
