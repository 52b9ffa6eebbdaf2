// Every limit of this folder, with its reason.
#pragma once

namespace ucm::kernel {

// One change of credentials is met with one new descriptor; another thread's may come in between.
inline constexpr int kSubmitTries = 4;

}  // namespace ucm::kernel
