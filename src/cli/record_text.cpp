#include "cli/record_text.h"

#include <array>
#include <cstdio>

#include "cli/trace_text.h"
#include "net/socket_address.h"

namespace ucm::cli {
namespace {

std::string hex_text(Bytes bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    text += digits.data();
  }
  return text;
}

// An archive of records.h.
class Teller {
 public:
  template <class T>
  Teller& operator()(const char* name, T& value) {
    const std::string before = prefix_;
    prefix_ += (prefix_.empty() ? "" : ".") + std::string(name);
    tell(value);
    prefix_ = before;
    return *this;
  }
  std::vector<std::pair<std::string, std::string>> fields;

 private:
  void put(std::string text) { fields.emplace_back(prefix_, std::move(text)); }

  template <recording::Number T>
  void tell(T value) {
    if constexpr (std::is_signed_v<T>) return put(std::to_string(static_cast<std::int64_t>(value)));
    const auto word = static_cast<std::uint64_t>(value);
    std::array<char, 24> hex{};
    std::snprintf(hex.data(), hex.size(), "0x%llx", static_cast<unsigned long long>(word));
    put(sizeof(T) > 2 && word > 9 ? hex.data() : std::to_string(word));
  }
  void tell(Bytes bytes) { put(hex_text(bytes)); }
  template <std::size_t N>
  void tell(const std::array<std::uint8_t, N>& bytes) {
    put(hex_text(bytes));
  }
  template <std::size_t N>
  void tell(const InlineBytes<N>& bytes) {
    put(hex_text(bytes.view()));
  }
  template <class T>
  void tell(std::optional<T>& value) {
    if (value) return tell(*value);
    put("none");
  }
  void tell(wire::IpAddress& address) { put(net::to_string(address)); }
  template <recording::Structure T>
  void tell(T& value) {
    recording::transfer(*this, value);
  }

  std::string prefix_;
};

bool is_nothing(const std::string& value) { return value.find_first_not_of("0:x") == std::string::npos; }

// A message by its name and what of it matters.
std::string mad_text(Bytes mad) {
  if (mad.size() != wire::kMadSize) return "no MAD";
  const std::string fields = message_text(mad);
  return message_name(mad[wire::MadHeader::kAttributeOffset + 1]) + (fields.empty() ? "" : " " + fields);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> fields_of(const recording::Record& record) {
  Teller teller;
  std::visit([&](auto fields) { recording::transfer(teller, fields); }, record);
  return std::move(teller.fields);
}

std::string record_text(const recording::Record& record) {
  const std::string name = recording::kRecordNames[record.index()];
  if (const auto* const received = std::get_if<recording::Received>(&record)) {
    return name + " " + mad_text(received->mad) + ", from " + net::to_string(received->path.remote);
  }
  if (const auto* const sent = std::get_if<recording::Sent>(&record)) {
    return name + " " + mad_text(sent->mad) + ", to " + net::to_string(sent->path.remote);
  }
  std::string text = name;
  for (const auto& [field, value] : fields_of(record)) {
    if (field != "now" && !is_nothing(value)) text += " " + field + "=" + value;
  }
  return text;
}

}  // namespace ucm::cli
