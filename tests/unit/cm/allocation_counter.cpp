#include "allocation_counter.h"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace {

std::size_t count = 0;
std::size_t held = 0;

}  // namespace

namespace ucm::test {

std::size_t allocations() { return count; }
std::size_t bytes_held() { return held; }

}  // namespace ucm::test

void* operator new(std::size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  ++count;
  held += malloc_usable_size(memory);
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory != nullptr) held -= malloc_usable_size(memory);
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
