#include "wire/mad.h"

#include "wire/fields.h"

namespace ucm::wire {

std::string_view name(Attribute attribute) {
  switch (attribute) {
    case Attribute::kReq:
      return "REQ";
    case Attribute::kMra:
      return "MRA";
    case Attribute::kRej:
      return "REJ";
    case Attribute::kRep:
      return "REP";
    case Attribute::kRtu:
      return "RTU";
    case Attribute::kDreq:
      return "DREQ";
    case Attribute::kDrep:
      return "DREP";
    case Attribute::kSidrReq:
      return "SIDR_REQ";
    case Attribute::kSidrRep:
      return "SIDR_REP";
    case Attribute::kLap:
      return "LAP";
    case Attribute::kApr:
      return "APR";
    case Attribute::kClassPortInfo:
      break;
  }
  return "";
}

static_assert(MadHeader::kSize + kMadPayloadSize == kMadSize);

constexpr void layout(auto& f, Is<MadHeader> auto& m) {
  f.word(0, m.base_version);
  f.word(1, m.management_class);
  f.word(2, m.class_version);
  f.word(3, m.method);
  f.word(4, m.status);
  f.word(6, m.class_specific);
  f.word(8, m.transaction_id);
  f.word(16, m.attribute);
  f.word(18, m.reserved);
  f.word(20, m.attribute_modifier);
}

std::optional<MadHeader> MadHeader::parse(Bytes bytes) { return parse_fields<MadHeader>(bytes); }
void MadHeader::emit(MutableBytes out) const { emit_fields(*this, out); }

}  // namespace ucm::wire
