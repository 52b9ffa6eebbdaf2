// Polynomials over GF(2) modulo the CRC-32's, for tables and for running a CRC backwards. A value is held
// bit-reflected: bit 31 is the coefficient of x^0. A CRC state that n zero bytes follow is multiplied by x^(8 n).
// Internal to src/wire.
#pragma once

#include <cstdint>

namespace ucm::wire {

inline constexpr std::uint32_t kCrcPolynomial = 0xEDB88320;
inline constexpr std::uint32_t kCrcOne = 0x80000000;

constexpr std::uint32_t times_x(std::uint32_t value, unsigned exponent) {
  for (unsigned i = 0; i < exponent; ++i) value = value >> 1 ^ (value & 1 ? kCrcPolynomial : 0);
  return value;
}
constexpr std::uint32_t divided_by_x(std::uint32_t value, unsigned exponent) {
  for (unsigned i = 0; i < exponent; ++i) value = value & kCrcOne ? (value ^ kCrcPolynomial) << 1 | 1 : value << 1;
  return value;
}
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (int i = 31; i >= 0; --i) {
    product ^= b & -(a >> i & 1);
    b = b >> 1 ^ (kCrcPolynomial & -(b & 1));
  }
  return product;
}

}  // namespace ucm::wire
