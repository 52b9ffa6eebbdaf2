// ucm-pcap-check FILE: verifies the ICRC of every RoCEv2 packet of a capture and prints one line per CM message and per
// bad packet. Exits 0 when there are RoCE packets and all are right, 1 otherwise, 2 when the file cannot be read.

#include <cinttypes>
#include <cstdio>
#include <string>

#include "support/cm_text.h"
#include "support/pcap.h"
#include "wire/icrc.h"
#include "wire/ud_packet.h"

namespace {

using namespace ucm;

struct Totals {
  std::size_t roce_packets = 0;
  std::size_t cm_messages = 0;
  std::size_t bad_packets = 0;
};

// Why a packet is wrong; null when it is right.
const char* fault_of(const test::Frame& frame, const test::RocePacket& packet) {
  if (frame.is_cut()) return "cut by the capture";
  if (!packet.has_plain_ip_header) return "IPv4 header with options or without DF";
  if (wire::verify_icrc(packet.info, packet.payload) != wire::IcrcCheck::kGood) return "bad ICRC";
  return nullptr;
}

void check_frame(std::size_t number, const test::Frame& frame, Totals& totals) {
  const auto packet = test::roce_packet_in(frame);
  if (!packet) return;
  ++totals.roce_packets;
  const std::string ends =
      test::address_text(packet->info.source) + " > " + test::address_text(packet->info.destination);
  if (const char* fault = fault_of(frame, *packet)) {
    ++totals.bad_packets;
    std::printf("%zu %s BAD %s\n", number, ends.c_str(), fault);
  }
  if (const auto mad = wire::parse_gsi_packet(packet->payload)) {
    ++totals.cm_messages;
    std::printf("%zu %s %s\n", number, ends.c_str(), test::cm_text(*mad).c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  const auto frames = test::read_capture(argv[1]);
  if (!frames) {
    std::fprintf(stderr, "%s: %s\n", argv[0], frames.error().message.c_str());
    return 2;
  }
  Totals totals;
  for (std::size_t i = 0; i < frames->size(); ++i) check_frame(i + 1, (*frames)[i], totals);
  std::printf("%zu RoCE packets, %zu CM messages, %zu bad\n", totals.roce_packets, totals.cm_messages,
              totals.bad_packets);
  return totals.roce_packets > 0 && totals.bad_packets == 0 ? 0 : 1;
}
