// Dispatch from an attribute to the CM message it names.
#pragma once

#include "wire/cm_messages.h"

namespace ucm::test {

// Calls visit(message) with the CM message that `attribute` names, parsed from `payload`. False when there is none.
template <class Visitor>
bool with_cm_message(wire::Attribute attribute, Bytes payload, Visitor visit) {
  const auto try_as = [&]<class Message>(std::optional<Message> (*parse)(Bytes)) {
    if (attribute != Message::kAttribute) return false;
    const auto message = parse(payload);
    if (message) visit(*message);
    return message.has_value();
  };
  using namespace wire;
  return try_as(&Req::parse) || try_as(&Rep::parse) || try_as(&Rtu::parse) || try_as(&Mra::parse) ||
         try_as(&Rej::parse) || try_as(&Dreq::parse) || try_as(&Drep::parse) || try_as(&SidrReq::parse) ||
         try_as(&SidrRep::parse) || try_as(&Lap::parse) || try_as(&Apr::parse);
}

}  // namespace ucm::test
