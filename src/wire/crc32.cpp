#include <array>

#include "wire/crc_polynomial.h"
#include "wire/icrc.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ucm::wire {
namespace {

// kSlices[k][b]: the state that byte b leaves behind when k zero bytes follow it.
using Slices = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr Slices make_slices() {
  Slices slices{};
  for (std::uint32_t b = 0; b < 256; ++b) slices[0][b] = times_x(b, 8);
  for (std::size_t k = 1; k < slices.size(); ++k) {
    for (std::size_t b = 0; b < 256; ++b) slices[k][b] = slices[k - 1][b] >> 8 ^ slices[0][slices[k - 1][b] & 0xff];
  }
  return slices;
}
constexpr Slices kSlices = make_slices();

std::uint32_t load_le32(const std::uint8_t* p) {
  return p[0] | std::uint32_t{p[1]} << 8 | std::uint32_t{p[2]} << 16 | std::uint32_t{p[3]} << 24;
}

}  // namespace

std::uint32_t crc32_portable(std::uint32_t state, Bytes bytes) {
  const std::uint8_t* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    const std::uint32_t a = state ^ load_le32(p);
    const std::uint32_t b = load_le32(p + 4);
    state = kSlices[7][a & 0xff] ^ kSlices[6][a >> 8 & 0xff] ^ kSlices[5][a >> 16 & 0xff] ^ kSlices[4][a >> 24] ^
            kSlices[3][b & 0xff] ^ kSlices[2][b >> 8 & 0xff] ^ kSlices[1][b >> 16 & 0xff] ^ kSlices[0][b >> 24];
  }
  for (; left > 0; --left, ++p) state = state >> 8 ^ kSlices[0][(state ^ *p) & 0xff];
  return state;
}

#if defined(__x86_64__)
namespace {

constexpr std::size_t kLaneSize = sizeof(__m128i);
// Four lanes hide the latency of the multiplication; with less than that the tables are as fast.
constexpr std::size_t kFoldedSizeMin = 4 * kLaneSize;

// To carry 128 bits of message `kDistance` bits onward, their halves are multiplied by x^(kDistance + 32) and
// x^(kDistance - 32). A product of reflected values lies one bit too low, hence the shift.
template <unsigned kDistance>
struct FoldMultipliers {
  static constexpr std::uint64_t kLow = std::uint64_t{times_x(kCrcOne, kDistance + 32)} << 1;
  static constexpr std::uint64_t kHigh = std::uint64_t{times_x(kCrcOne, kDistance - 32)} << 1;
};

template <unsigned kDistance>
[[gnu::target("pclmul")]] inline __m128i fold(__m128i lane) {
  using Multipliers = FoldMultipliers<kDistance>;
  const __m128i multipliers = _mm_set_epi64x(Multipliers::kHigh, Multipliers::kLow);
  return _mm_xor_si128(_mm_clmulepi64_si128(lane, multipliers, 0x00), _mm_clmulepi64_si128(lane, multipliers, 0x11));
}

inline __m128i load_lane(const std::uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// Folds whole lanes into one that has the same remainder, and leaves that and the odd bytes to the tables.
[[gnu::target("pclmul")]] std::uint32_t crc32_folded(std::uint32_t state, Bytes bytes) {
  const std::uint8_t* p = bytes.data();
  std::size_t left = bytes.size();
  __m128i lane0 = _mm_xor_si128(load_lane(p), _mm_cvtsi32_si128(static_cast<int>(state)));
  __m128i lane1 = load_lane(p + kLaneSize);
  __m128i lane2 = load_lane(p + 2 * kLaneSize);
  __m128i lane3 = load_lane(p + 3 * kLaneSize);
  for (p += 4 * kLaneSize, left -= 4 * kLaneSize; left >= 4 * kLaneSize; p += 4 * kLaneSize, left -= 4 * kLaneSize) {
    lane0 = _mm_xor_si128(fold<512>(lane0), load_lane(p));
    lane1 = _mm_xor_si128(fold<512>(lane1), load_lane(p + kLaneSize));
    lane2 = _mm_xor_si128(fold<512>(lane2), load_lane(p + 2 * kLaneSize));
    lane3 = _mm_xor_si128(fold<512>(lane3), load_lane(p + 3 * kLaneSize));
  }
  __m128i lane =
      _mm_xor_si128(_mm_xor_si128(fold<384>(lane0), fold<256>(lane1)), _mm_xor_si128(fold<128>(lane2), lane3));
  for (; left >= kLaneSize; p += kLaneSize, left -= kLaneSize) lane = _mm_xor_si128(fold<128>(lane), load_lane(p));

  std::array<std::uint8_t, kLaneSize> remainder;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(remainder.data()), lane);
  return crc32_portable(crc32_portable(0, remainder), Bytes(p, left));
}

}  // namespace

bool crc32_is_accelerated() {
  static const bool has_multiply = __builtin_cpu_supports("pclmul") != 0;
  return has_multiply;
}

std::uint32_t crc32(std::uint32_t state, Bytes bytes) {
  if (bytes.size() < kFoldedSizeMin || !crc32_is_accelerated()) return crc32_portable(state, bytes);
  return crc32_folded(state, bytes);
}
#else
bool crc32_is_accelerated() { return false; }
std::uint32_t crc32(std::uint32_t state, Bytes bytes) { return crc32_portable(state, bytes); }
#endif

}  // namespace ucm::wire
