#include "bench/workload.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <new>

namespace ucm::bench {

Samples::Samples(const Workload& workload) : workload_(workload) {
  const std::size_t size = sizeof(Header) + kPhaseCount * workload_.connections * sizeof(std::uint32_t);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = {memory, Unmap{size}};
  header_ = new (memory) Header{};
  durations_ = reinterpret_cast<std::uint32_t*>(header_ + 1);
}

void Samples::record(Phase phase, std::uint32_t thread, std::uint32_t slot, TimeNs duration) {
  const std::uint32_t held = workload_.held_by(thread);
  if (slot < held || slot >= workload_.slots_of(thread)) return;
  const std::uint32_t index = workload_.split(workload_.connections, thread) + slot - held;
  const TimeNs stored = std::clamp<TimeNs>(duration, 1, std::numeric_limits<std::uint32_t>::max());
  durations_[static_cast<std::size_t>(phase) * workload_.connections + index] = static_cast<std::uint32_t>(stored);
}

std::span<const std::uint32_t> Samples::of(Phase phase) const {
  return {durations_ + static_cast<std::size_t>(phase) * workload_.connections, workload_.connections};
}

TimeNs monotonic_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kNanosecondsPerSecond + time.tv_nsec;
}

}  // namespace ucm::bench
