#include "wire/headers.h"

#include "wire/fields.h"

namespace ucm::wire {

constexpr void layout(auto& f, Is<Bth> auto& m) {
  f.word(0, m.opcode);
  f.bit(1, 7, m.solicited_event);
  f.bit(1, 6, m.mig_req);
  f.bits(1, 5, 4, m.pad_count);
  f.word(2, m.pkey);
  f.word24(5, m.destination_qpn);
  f.bit(8, 7, m.ack_request);
  f.word24(9, m.psn);
}

constexpr void layout(auto& f, Is<Deth> auto& m) {
  f.word(0, m.qkey);
  f.word24(5, m.source_qpn);
}

constexpr void layout(auto& f, Is<XrcEth> auto& m) { f.word24(1, m.srq_number); }

constexpr void layout(auto& f, Is<Reth> auto& m) {
  f.word(0, m.virtual_address);
  f.word(8, m.rkey);
  f.word(12, m.dma_length);
}

constexpr void layout(auto& f, Is<AtomicEth> auto& m) {
  f.word(0, m.virtual_address);
  f.word(8, m.rkey);
  f.word(12, m.swap_or_add);
  f.word(20, m.compare);
}

constexpr void layout(auto& f, Is<Aeth> auto& m) {
  f.word(0, m.syndrome);
  f.word24(1, m.msn);
}

constexpr void layout(auto& f, Is<AtomicAckEth> auto& m) { f.word(0, m.original); }

constexpr void layout(auto& f, Is<Ieth> auto& m) { f.word(0, m.rkey); }

std::optional<Bth> Bth::parse(Bytes bytes) {
  constexpr std::uint8_t kTransportVersionMask = 0x0F;
  if (bytes.size() < kSize || (bytes[1] & kTransportVersionMask) != 0) return std::nullopt;
  return parse_fields<Bth>(bytes);
}
void Bth::emit(MutableBytes out) const { emit_fields(*this, out); }

std::optional<Deth> Deth::parse(Bytes bytes) { return parse_fields<Deth>(bytes); }
void Deth::emit(MutableBytes out) const { emit_fields(*this, out); }

std::optional<XrcEth> XrcEth::parse(Bytes bytes) { return parse_fields<XrcEth>(bytes); }
void XrcEth::emit(MutableBytes out) const { emit_fields(*this, out); }

std::optional<Reth> Reth::parse(Bytes bytes) { return parse_fields<Reth>(bytes); }
void Reth::emit(MutableBytes out) const { emit_fields(*this, out); }

std::optional<AtomicEth> AtomicEth::parse(Bytes bytes) { return parse_fields<AtomicEth>(bytes); }
void AtomicEth::emit(MutableBytes out) const { emit_fields(*this, out); }

std::optional<Aeth> Aeth::parse(Bytes bytes) { return parse_fields<Aeth>(bytes); }
void Aeth::emit(MutableBytes out) const { emit_fields(*this, out); }

std::optional<AtomicAckEth> AtomicAckEth::parse(Bytes bytes) { return parse_fields<AtomicAckEth>(bytes); }
void AtomicAckEth::emit(MutableBytes out) const { emit_fields(*this, out); }

// The application's four bytes travel as they lie in memory.
std::optional<ImmDt> ImmDt::parse(Bytes bytes) {
  if (bytes.size() < kSize) return std::nullopt;
  ImmDt header;
  std::memcpy(&header.immediate, bytes.data(), kSize);
  return header;
}
void ImmDt::emit(MutableBytes out) const {
  UCM_CHECK(out.size() >= kSize);
  std::memcpy(out.data(), &immediate, kSize);
}

std::optional<Ieth> Ieth::parse(Bytes bytes) { return parse_fields<Ieth>(bytes); }
void Ieth::emit(MutableBytes out) const { emit_fields(*this, out); }

}  // namespace ucm::wire
