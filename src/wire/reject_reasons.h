// What the reason of a REJ, and the status of a SIDR_REP, say to a person.
#pragma once

#include <string_view>

#include "wire/cm_messages.h"

namespace ucm::wire {

std::string_view text_of(RejReason reason);
std::string_view text_of(SidrStatus status);

}  // namespace ucm::wire
