#include "support/reemit.h"

#include <algorithm>

#include "support/with_cm_message.h"
#include "wire/headers.h"
#include "wire/icrc.h"
#include "wire/mad.h"

namespace ucm::test {
namespace {

using namespace wire;

// Walks over a packet, header after header, and writes each again.
class Reemitter {
 public:
  explicit Reemitter(Bytes packet) : left_(packet) {}

  template <class Header>
  bool header() {
    const auto parsed = Header::parse(left_);
    if (!parsed) return false;
    parsed->emit(take(Header::kSize));
    return true;
  }
  bool mad() {
    const auto mad = MadHeader::parse(left_);
    if (!mad || left_.size() < kMadSize + kIcrcSize) return false;
    mad->emit(take(MadHeader::kSize));
    const Bytes payload = left_.first(kMadPayloadSize);
    const MutableBytes out = take(kMadPayloadSize);
    const bool known = with_cm_message(mad->attribute, payload, [&](const auto& message) { message.emit(out); });
    if (!known) std::copy(payload.begin(), payload.end(), out.begin());
    return true;
  }
  std::vector<std::uint8_t> rest_copied() {
    written_.insert(written_.end(), left_.begin(), left_.end());
    return std::move(written_);
  }

 private:
  MutableBytes take(std::size_t size) {
    left_ = left_.subspan(size);
    written_.resize(written_.size() + size, 0xA5);
    return MutableBytes(written_).last(size);
  }
  Bytes left_;
  std::vector<std::uint8_t> written_;
};

// The headers after BTH that `opcode` announces.
bool extension_headers(Reemitter& packet, Opcode opcode) {
  switch (opcode) {
    case Opcode::kRcSendLastImm:
    case Opcode::kRcSendOnlyImm:
    case Opcode::kRcWriteLastImm:
      return packet.header<ImmDt>();
    case Opcode::kRcWriteFirst:
    case Opcode::kRcWriteOnly:
    case Opcode::kRcReadRequest:
      return packet.header<Reth>();
    case Opcode::kRcWriteOnlyImm:
      return packet.header<Reth>() && packet.header<ImmDt>();
    case Opcode::kRcReadResponseFirst:
    case Opcode::kRcReadResponseLast:
    case Opcode::kRcReadResponseOnly:
    case Opcode::kRcAck:
      return packet.header<Aeth>();
    case Opcode::kRcAtomicAck:
      return packet.header<Aeth>() && packet.header<AtomicAckEth>();
    case Opcode::kRcCompareSwap:
    case Opcode::kRcFetchAdd:
      return packet.header<AtomicEth>();
    case Opcode::kRcSendLastInvalidate:
    case Opcode::kRcSendOnlyInvalidate:
      return packet.header<Ieth>();
    case Opcode::kUdSendOnly:
      return packet.header<Deth>();
    case Opcode::kUdSendOnlyImm:
      return packet.header<Deth>() && packet.header<ImmDt>();
    default:
      return true;
  }
}

}  // namespace

std::vector<std::uint8_t> reemit(Bytes packet) {
  const auto bth = Bth::parse(packet);
  Reemitter reemitter(packet);
  if (!bth || !reemitter.header<Bth>() || !extension_headers(reemitter, bth->opcode)) return {};
  const bool is_mad = bth->opcode == Opcode::kUdSendOnly && bth->destination_qpn == kGsiQpn;
  if (is_mad && !reemitter.mad()) return {};
  return reemitter.rest_copied();
}

}  // namespace ucm::test
