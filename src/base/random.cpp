#include "base/random.h"

#include <bit>

namespace ucm {
namespace {

struct SipState {
  std::uint64_t v0, v1, v2, v3;
  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  explicit SipState(const RandomKey& key)
      : v0(key[0] ^ 0x736f6d6570736575),
        v1(key[1] ^ 0x646f72616e646f6d),
        v2(key[0] ^ 0x6c7967656e657261),
        v3(key[1] ^ 0x7465646279746573) {}
  void absorb(std::uint64_t word, int rounds) {
    v3 ^= word;
    for (int i = 0; i < rounds; ++i) round();
    v0 ^= word;
  }
  std::uint64_t finish(int rounds) {
    v2 ^= 0xff;
    for (int i = 0; i < rounds; ++i) round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

// The last block of a message of whole words: no bytes left, the length.
constexpr std::uint64_t last_block(std::size_t words) { return std::uint64_t{8} * words << 56; }

}  // namespace

std::uint64_t siphash24(const RandomKey& key, std::uint64_t word) {
  SipState s(key);
  s.absorb(word, 2);
  s.absorb(last_block(1), 2);
  return s.finish(4);
}

std::uint64_t table_hash(const RandomKey& key, std::initializer_list<std::uint64_t> words) {
  SipState s(key);
  for (const std::uint64_t word : words) s.absorb(word, 1);
  s.absorb(last_block(words.size()), 1);
  return s.finish(3);
}

std::uint64_t Random::below(std::uint64_t bound) {
  // Rejection keeps it uniform; at most one expected retry.
  const std::uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  std::uint64_t value = next();
  while (value >= limit) value = next();
  return value % bound;
}

}  // namespace ucm
