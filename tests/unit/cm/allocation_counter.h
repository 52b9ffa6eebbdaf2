// Counts every allocation of the program it is linked into.
#pragma once

#include <cstddef>

namespace ucm::test {

std::size_t allocations();  // since the start
std::size_t bytes_held();   // now

}  // namespace ucm::test
