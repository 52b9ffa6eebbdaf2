// A keyed random sequence: SipHash-2-4 of a counter. Deterministic for a key, unpredictable without it, so it
// serves simulation (seed in, same run out) and production (key from the system's random source) alike.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

namespace ucm {

using RandomKey = std::array<std::uint64_t, 2>;

std::uint64_t siphash24(const RandomKey& key, std::uint64_t word);

// SipHash-1-3 of some words: for hash tables whose keys a stranger chooses. Quicker than siphash24(), and not for
// numbers that must not be guessed.
std::uint64_t table_hash(const RandomKey& key, std::initializer_list<std::uint64_t> words);

// Copyable and comparable: a copy continues the same sequence.
class Random {
 public:
  explicit Random(const RandomKey& key) : key_(key) {}
  // For tests and simulation.
  explicit Random(std::uint64_t seed) : key_{seed, ~seed} {}

  std::uint64_t next() { return siphash24(key_, counter_++); }
  std::uint32_t next_u32() { return static_cast<std::uint32_t>(next()); }
  // Uniform in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound);
  // True with probability numerator / denominator.
  bool chance(std::uint64_t numerator, std::uint64_t denominator) { return below(denominator) < numerator; }

  bool operator==(const Random&) const = default;

 private:
  RandomKey key_;
  std::uint64_t counter_ = 0;
};

}  // namespace ucm
