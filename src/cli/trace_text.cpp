#include "cli/trace_text.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <system_error>

#include "cli/text.h"
#include "cm/counters.h"
#include "cm/sidr_state_machine.h"
#include "cm/state_machine.h"
#include "ipc/names.h"
#include "net/socket_address.h"
#include "wire/cm_messages.h"
#include "wire/ip_cm.h"
#include "wire/mad.h"
#include "wire/reject_reasons.h"

namespace ucm::cli {
namespace {

using ipc::TraceKind;
using ipc::TraceRecord;

// printf into a string; everything here is short.
[[gnu::format(printf, 1, 2)]] std::string print(const char* format, ...) {
  std::array<char, 256> buffer{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer.data(), buffer.size(), format, arguments);
  va_end(arguments);
  return buffer.data();
}

std::string name_or_number(std::string_view name, unsigned number) {
  return name.empty() ? std::to_string(number) : std::string(name);
}

bool is_sidr(const TraceRecord& record) { return (record.flags & ipc::kTraceSidr) != 0; }

std::string state_name(const TraceRecord& record, std::uint8_t state) {
  if (is_sidr(record)) {
    return state <= cm::kSidrStateCount ? std::string(cm::name(static_cast<cm::SidrState>(state))) : "?";
  }
  return state <= cm::kStateCount ? std::string(cm::name(static_cast<cm::State>(state))) : "?";
}
std::string input_name(const TraceRecord& record) {
  if (is_sidr(record)) {
    return record.input < cm::kSidrInputCount ? std::string(cm::name(static_cast<cm::SidrInput>(record.input))) : "?";
  }
  return record.input < cm::kInputCount ? std::string(cm::name(static_cast<cm::Input>(record.input))) : "?";
}
std::string action_name(const TraceRecord& record) {
  if (is_sidr(record)) {
    return record.action < cm::kSidrActionCount ? std::string(cm::name(static_cast<cm::SidrAction>(record.action)))
                                                : "?";
  }
  return record.action < cm::kActionCount ? std::string(cm::name(static_cast<cm::Action>(record.action))) : "?";
}
std::string counter_name(std::int32_t counter) {
  const auto index = static_cast<std::size_t>(counter);
  return counter >= 0 && index < cm::kCounterFields.size() ? std::string(cm::kCounterFields[index].name) : "?";
}

std::string change_text(const TraceRecord& record) {
  const std::string from = state_name(record, record.from);
  const std::string states = record.from == record.to ? "in " + from : from + " -> " + state_name(record, record.to);
  return states + " (" + action_name(record) + ")";
}

// Why a message was sent.
std::string cause_text(const TraceRecord& record) {
  if ((record.flags & ipc::kTraceAnswersStray) != 0) return "because of a message: " + counter_name(record.status);
  if ((record.flags & ipc::kTraceLastWords) != 0) return "said again: nobody would answer it";
  if ((record.flags & ipc::kTraceSidrConnect) != 0) return "for connect";
  const bool retry =
      record.input == static_cast<std::uint8_t>(is_sidr(record) ? static_cast<int>(cm::SidrInput::kRetryDue)
                                                                : static_cast<int>(cm::Input::kRetryDue));
  return (retry ? "retry " + std::to_string(record.repetition) + ": no answer" : "for " + input_name(record)) +
         ", in " + state_name(record, record.from);
}

// Of an event: positive is the peer's reason, negative an errno.
std::string status_text(std::int32_t status) {
  if (status == 0) return "";
  if (status > 0) return ", reason " + std::to_string(status);
  return ", " + std::generic_category().message(-status);
}

std::string time_of_day(std::int64_t wall_ns) {
  const auto seconds = static_cast<std::time_t>(wall_ns / 1'000'000'000);
  std::tm local{};
  localtime_r(&seconds, &local);
  return print("%02d:%02d:%02d.%06d", local.tm_hour, local.tm_min, local.tm_sec,
               static_cast<int>(wall_ns % 1'000'000'000 / 1000));
}

std::string request_text(Bytes payload) {
  const auto req = *wire::Req::parse(payload);
  return print("service 0x%016" PRIx64 " qpn 0x%06x psn 0x%06x mtu %u rd %u/%u retry %u rnr %u", req.service_id,
               req.local_qpn, req.starting_psn, 128u << std::min<unsigned>(req.path_mtu, 5), req.responder_resources,
               req.initiator_depth, req.retry_count, req.rnr_retry_count);
}

std::string reject_text(Bytes payload) {
  const auto rej = *wire::Rej::parse(payload);
  return print("reason %u (", static_cast<unsigned>(rej.reason)) + std::string(wire::text_of(rej.reason)) + ")";
}

}  // namespace

std::string message_name(std::uint8_t message) {
  const std::string name(wire::name(static_cast<wire::Attribute>(message)));
  return name.empty() ? "?" : name;
}

std::string message_text(Bytes mad) {
  const auto header = wire::MadHeader::parse(mad);
  if (!header || mad.size() != wire::kMadSize) return "";
  // Every payload of this size parses.
  const Bytes payload = mad.subspan(wire::MadHeader::kSize);
  switch (header->attribute) {
    case wire::Attribute::kReq:
      return request_text(payload);
    case wire::Attribute::kRep: {
      const auto rep = *wire::Rep::parse(payload);
      return print("qpn 0x%06x psn 0x%06x rd %u/%u rnr %u", rep.local_qpn, rep.starting_psn, rep.responder_resources,
                   rep.initiator_depth, rep.rnr_retry_count);
    }
    case wire::Attribute::kRej:
      return reject_text(payload);
    case wire::Attribute::kMra:
      return print("service timeout 2^%u * 4.096 us", wire::Mra::parse(payload)->service_timeout);
    case wire::Attribute::kDreq:
      return print("for qpn 0x%06x", wire::Dreq::parse(payload)->remote_qpn);
    case wire::Attribute::kSidrReq:
      return print("service 0x%016" PRIx64, wire::SidrReq::parse(payload)->service_id);
    case wire::Attribute::kSidrRep: {
      const auto rep = *wire::SidrRep::parse(payload);
      return print("status %u qpn 0x%06x qkey 0x%08x", static_cast<unsigned>(rep.status), rep.qpn, rep.qkey);
    }
    default:
      return "";
  }
}

std::string what_text(const TraceRecord& record) {
  const std::string message = padded(message_name(record.message), 5);
  switch (record.kind) {
    case TraceKind::kBegin:
      return record.message != 0 ? "received " + message + " new connection, " + state_name(record, record.to)
                                 : "begin    connect, " + state_name(record, record.to);
    case TraceKind::kReceived:
      return "received " + message + " " + change_text(record);
    case TraceKind::kStray:
      return "received " + message + " of no connection: " + counter_name(record.status);
    case TraceKind::kSent:
      return "sent     " + message + " " + cause_text(record);
    case TraceKind::kStep:
      return "step     " + input_name(record) + ": " + change_text(record);
    case TraceKind::kCall:
      return "call     " + name_or_number(ipc::name(static_cast<ipc::CmCall>(record.input)), record.input) +
             (record.status != 0 ? ": " + std::generic_category().message(record.status) : "");
    case TraceKind::kEvent:
      return "event    " + name_or_number(ipc::name(static_cast<ipc::CmEventType>(record.input)), record.input) +
             status_text(record.status);
  }
  return "?";
}

std::string what_text(const ToldRecord& told) {
  return what_text(told.record) + (told.why.empty() ? "" : ": " + told.why);
}

std::string story_text(const std::vector<ToldRecord>& records, std::int64_t wall_offset_ns) {
  if (records.empty()) return "";
  // Whatever record tells it.
  TraceRecord all;
  for (const auto& [record, why] : records) {
    if (all.id == 0) all.id = record.id;
    if (all.local_comm_id == 0) all.local_comm_id = record.local_comm_id;
    if (all.remote_comm_id == 0) all.remote_comm_id = record.remote_comm_id;
    if (all.local_qpn == 0) all.local_qpn = record.local_qpn;
    if (all.remote_qpn == 0) all.remote_qpn = record.remote_qpn;
    if (all.user == ipc::kTraceNoUser) all.user = record.user;
    if (wire::IpAddress{all.peer}.is_unspecified()) all.peer = record.peer;
  }
  const TraceRecord& first = records.back().record;
  std::string out = print("ID %u, user %d, peer ", all.id, static_cast<int>(all.user)) +
                    net::to_string(wire::IpAddress{all.peer}) +
                    print("\ncomm ID 0x%08x, of the peer 0x%08x; QP 0x%06x, of the peer 0x%06x\n", all.local_comm_id,
                          all.remote_comm_id, all.local_qpn, all.remote_qpn) +
                    "from " + time_of_day(first.time_ns + wall_offset_ns) + ", in milliseconds\n";
  for (auto told = records.rbegin(); told != records.rend(); ++told) {
    out +=
        print("%+12.3f  ", static_cast<double>(told->record.time_ns - first.time_ns) / 1e6) + what_text(*told) + "\n";
  }
  return out;
}

std::string comment_text(const TraceRecord& record) {
  return print("ID %u, comm 0x%08x/0x%08x: ", record.id, record.local_comm_id, record.remote_comm_id) +
         what_text(record);
}

std::string trace_line(const ipc::TraceFrame& frame, Bytes mad, std::int64_t wall_offset_ns) {
  const TraceRecord& record = frame.record;
  if (record.kind == TraceKind{}) return print("... %d records lost: too many to be read\n", record.status);
  const wire::IpAddress peer{record.peer};
  const std::string fields = message_text(mad);
  return time_of_day(record.time_ns + wall_offset_ns) + print(" %u %08x ", record.id, record.local_comm_id) +
         (peer.is_unspecified() ? "-" : net::to_string(peer)) + " " + what_text(record) +
         (fields.empty() ? "" : "; " + fields) + "\n";
}

}  // namespace ucm::cli
