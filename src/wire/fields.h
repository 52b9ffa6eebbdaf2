// One description of a wire layout, three uses: reading it, writing it, and proving at compile time that it is sound.
//
// A layout is a function `layout(codec, message)` that names every field once, by byte offset and bits; bit 7 of a byte
// is its most significant. FieldReader and FieldWriter are the codecs that run; layout_is_sound() is for static_assert.
// Everything is big-endian. Internal to src/wire. The flattened functions are a page of loads or stores each: with a
// call per field they take three times as long.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "base/bytes.h"
#include "base/check.h"
#include "wire/address.h"

namespace ucm::wire {

// M is T or const T: lets one layout serve reading and writing.
template <class M, class T>
concept Is = std::same_as<std::remove_const_t<M>, T>;

// An unsigned big-endian word of 1, 2, 3, 4 or 8 bytes.
constexpr std::uint64_t load_word(const std::uint8_t* p, std::size_t size) {
  switch (size) {
    case 1:
      return *p;
    case 2:
      return load_be16(p);
    case 3:
      return load_be24(p);
    case 4:
      return load_be32(p);
    default:
      return load_be64(p);
  }
}
constexpr void store_word(std::uint8_t* p, std::size_t size, std::uint64_t word) {
  switch (size) {
    case 1:
      *p = static_cast<std::uint8_t>(word);
      break;
    case 2:
      store_be16(p, static_cast<std::uint16_t>(word));
      break;
    case 3:
      store_be24(p, static_cast<std::uint32_t>(word));
      break;
    case 4:
      store_be32(p, static_cast<std::uint32_t>(word));
      break;
    default:
      store_be64(p, word);
  }
}
constexpr std::uint64_t low_bits(unsigned width) { return width >= 64 ? ~std::uint64_t{0} : (1ull << width) - 1; }

// The vocabulary of layouts, in terms of the codec's two primitives:
//   field(offset, size, high, low, value)  bits [high:low] of the `size`-byte word at `offset`
//   octets(offset, array)                  bytes as they are
template <class Codec>
class FieldNames {
 public:
  // A whole word of the value's own size.
  template <class T>
  constexpr void word(std::size_t offset, T& value) {
    self().field(offset, sizeof(T), 8 * sizeof(T) - 1, 0, value);
  }
  template <class T>
  constexpr void word24(std::size_t offset, T& value) {
    self().field(offset, 3, 23, 0, value);
  }
  // Bits [high:low] of one byte.
  template <class T>
  constexpr void bits(std::size_t offset, unsigned high, unsigned low, T& value) {
    self().field(offset, 1, high, low, value);
  }
  template <class T>
  constexpr void bit(std::size_t offset, unsigned position, T& value) {
    self().field(offset, 1, position, position, value);
  }
  // The upper 20 of 24 bits: a flow label.
  template <class T>
  constexpr void upper20(std::size_t offset, T& value) {
    self().field(offset, 3, 23, 4, value);
  }
  // 24 bits scattered over three bytes, most significant first: the vendor ID of the answers.
  template <class T>
  constexpr void split24(std::size_t high_offset, std::size_t middle_offset, std::size_t low_offset, T& value) {
    if constexpr (std::is_const_v<T>) UCM_CHECK(value <= low_bits(24));
    std::uint8_t high = static_cast<std::uint8_t>(value >> 16);
    std::uint8_t middle = static_cast<std::uint8_t>(value >> 8);
    std::uint8_t low = static_cast<std::uint8_t>(value);
    word(high_offset, high);
    word(middle_offset, middle);
    word(low_offset, low);
    if constexpr (!std::is_const_v<T>) value = std::uint32_t{high} << 16 | std::uint32_t{middle} << 8 | low;
  }
  constexpr void gid(std::size_t offset, Is<IpAddress> auto& value) { self().octets(offset, value.bytes); }

 private:
  constexpr Codec& self() { return static_cast<Codec&>(*this); }
};

// Fills a message from bytes that are known to be long enough.
class FieldReader : public FieldNames<FieldReader> {
 public:
  explicit constexpr FieldReader(Bytes bytes) : bytes_(bytes) {}

  template <class T>
  constexpr void field(std::size_t offset, std::size_t size, unsigned high, unsigned low, T& value) const {
    value = static_cast<T>(load_word(&bytes_[offset], size) >> low & low_bits(high - low + 1));
  }
  template <std::size_t N>
  constexpr void octets(std::size_t offset, std::array<std::uint8_t, N>& value) const {
    std::copy_n(&bytes_[offset], N, value.begin());
  }

 private:
  Bytes bytes_;
};

// Writes a message into zeroed bytes that are known to be long enough.
class FieldWriter : public FieldNames<FieldWriter> {
 public:
  explicit constexpr FieldWriter(MutableBytes bytes) : bytes_(bytes) {}

  template <class T>
  constexpr void field(std::size_t offset, std::size_t size, unsigned high, unsigned low, const T& value) const {
    const auto bits = static_cast<std::uint64_t>(value);
    const bool is_whole_word = high - low + 1 == 8 * size;
    UCM_CHECK(bits <= low_bits(high - low + 1));
    store_word(&bytes_[offset], size, is_whole_word ? bits : load_word(&bytes_[offset], size) | bits << low);
  }
  template <std::size_t N>
  constexpr void octets(std::size_t offset, const std::array<std::uint8_t, N>& value) const {
    std::copy_n(value.begin(), N, &bytes_[offset]);
  }

 private:
  MutableBytes bytes_;
};

// Claims the bits of every field, to find two fields that share one and fields outside of the message.
template <std::size_t kSize>
class FieldClaims : public FieldNames<FieldClaims<kSize>> {
 public:
  template <class T>
  constexpr void field(std::size_t offset, std::size_t size, unsigned high, unsigned low, T&) {
    if (high >= 8 * size || low > high) sound_ = false;
    std::array<std::uint8_t, 8> mask{};
    store_word(mask.data(), size, low_bits(high - low + 1) << low);
    for (std::size_t i = 0; i < size; ++i) claim(offset + i, mask[i]);
  }
  template <std::size_t N>
  constexpr void octets(std::size_t offset, const std::array<std::uint8_t, N>&) {
    for (std::size_t i = 0; i < N; ++i) claim(offset + i, 0xff);
  }
  constexpr bool sound() const { return sound_; }
  constexpr bool reaches_the_end() const { return claimed_[kSize - 1] != 0; }

 private:
  constexpr void claim(std::size_t offset, std::uint8_t mask) {
    if (offset >= kSize || (claimed_[offset] & mask) != 0) {
      sound_ = false;
    } else {
      claimed_[offset] |= mask;
    }
  }
  std::array<std::uint8_t, kSize> claimed_{};
  bool sound_ = true;
};

// No two fields of T share a bit, all lie inside kSize bytes, and the last byte belongs to one.
template <class T, std::size_t kSize>
constexpr bool layout_is_sound() {
  FieldClaims<kSize> claims;
  T message{};
  layout(claims, message);
  return claims.sound() && claims.reaches_the_end();
}

// The first kSize bytes of `bytes` as a T; nullopt when there are fewer.
template <class T, std::size_t kSize = T::kSize>
[[gnu::flatten]] std::optional<T> parse_fields(Bytes bytes) {
  static_assert(layout_is_sound<T, kSize>());
  if (bytes.size() < kSize) return std::nullopt;
  FieldReader reader(bytes);
  std::optional<T> message(std::in_place);
  layout(reader, *message);
  return message;
}

// Writes exactly kSize bytes, bits that belong to no field as zero. Values must fit their fields.
template <class T, std::size_t kSize = T::kSize>
[[gnu::flatten]] void emit_fields(const T& message, MutableBytes out) {
  UCM_CHECK(out.size() >= kSize);
  std::fill_n(out.begin(), kSize, std::uint8_t{0});
  FieldWriter writer(out);
  layout(writer, message);
}

}  // namespace ucm::wire
