// Any bytes as the MAD of a CM message: what is parsed and emitted parses again to the same.
#include <array>
#include <vector>

#include "base/check.h"
#include "support/cm_text.h"
#include "support/with_cm_message.h"
#include "wire/ip_cm.h"

namespace {

using namespace ucm;
using namespace ucm::wire;

template <class T, std::size_t kSize>
std::array<std::uint8_t, kSize> emitted(const T& value) {
  std::array<std::uint8_t, kSize> bytes;
  value.emit(bytes);
  return bytes;
}

template <class T, std::size_t kSize>
void check_round_trip(const T& value) {
  const auto first = emitted<T, kSize>(value);
  const auto again = T::parse(first);
  UCM_CHECK(again);
  UCM_CHECK((emitted<T, kSize>(*again) == first));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes input(data, size);
  const auto header = MadHeader::parse(input);
  UCM_CHECK(header.has_value() == (size >= MadHeader::kSize));
  if (!header) return 0;
  check_round_trip<MadHeader, MadHeader::kSize>(*header);

  const Bytes payload = input.subspan(MadHeader::kSize);
  const bool parsed = test::with_cm_message(header->attribute, payload, [](const auto& message) {
    check_round_trip<std::decay_t<decltype(message)>, kMadPayloadSize>(message);
    if (const auto ip_cm = IpCmHeader::parse(message.private_data)) {
      check_round_trip<IpCmHeader, IpCmHeader::kSize>(*ip_cm);
    }
  });
  UCM_CHECK(!parsed || payload.size() == kMadPayloadSize);
  if (size == kMadSize) test::cm_text(input.first<kMadSize>());
  return 0;
}
