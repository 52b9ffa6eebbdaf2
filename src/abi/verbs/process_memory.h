// What this process may do with its own memory, as its page tables stand now.
#pragma once

#include <cstddef>

namespace ucm::abi::verbs {

// True when all of [address, address + length) is mapped readable, and writable if `write`. True as well when the
// system does not tell (no /proc): then a bad region shows when it is used.
bool process_memory_allows(const void* address, std::size_t length, bool write);

}  // namespace ucm::abi::verbs
