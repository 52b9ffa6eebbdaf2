#include "net/fault_port.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>
#include <utility>

#include "wire/headers.h"
#include "wire/mad.h"

namespace ucm::net {
namespace {

// Later datagrams that overtake a reordered one, at most.
constexpr std::uint32_t kPassesMax = 4;

constexpr std::string_view kSpareUnreliable = "spare-unreliable";
constexpr std::string_view kKnownNames = "loss, duplicate, reorder, corrupt, seed, spare-unreliable";

Result<std::uint64_t> parse_number(std::string_view name, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(EINVAL, "fault \"" + std::string(name) + "\" needs a whole number, not \"" + std::string(text) + "\"");
  }
  return value;
}

std::uint32_t* percentage(FaultSpec& spec, std::string_view name) {
  if (name == "loss") return &spec.loss;
  if (name == "duplicate") return &spec.duplicate;
  if (name == "reorder") return &spec.reorder;
  if (name == "corrupt") return &spec.corrupt;
  return nullptr;
}

Result<void> parse_part(std::string_view part, FaultSpec& spec) {
  if (part == kSpareUnreliable) {
    spec.spare_unreliable = true;
    return {};
  }
  const std::size_t equals = part.find('=');
  if (equals == std::string_view::npos) {
    return fail(EINVAL, "fault \"" + std::string(part) + "\" is not of the form name=number");
  }
  const std::string_view name = part.substr(0, equals);
  std::uint32_t* const percent = percentage(spec, name);
  if (percent == nullptr && name != "seed") {
    return fail(EINVAL, "unknown fault \"" + std::string(name) + "\"; known are " + std::string(kKnownNames));
  }
  const auto value = parse_number(name, part.substr(equals + 1));
  if (!value) return tl::unexpected(value.error());
  if (percent == nullptr) {
    spec.seed = *value;
  } else if (*value > 100) {
    return fail(EINVAL, "fault \"" + std::string(name) + "\" is a percentage: 0 to 100, not " + std::to_string(*value));
  } else {
    *percent = static_cast<std::uint32_t>(*value);
  }
  return {};
}

// Of a UC or UD QP other than the CM's.
bool is_unreliable(Bytes packet) {
  const auto bth = wire::Bth::parse(packet);
  if (!bth || bth->destination_qpn == wire::kGsiQpn) return false;
  const wire::Service service = wire::service_of(bth->opcode);
  return service == wire::Service::kUc || service == wire::Service::kUd;
}

}  // namespace

Result<FaultSpec> FaultSpec::parse(std::string_view text) {
  FaultSpec spec;
  while (true) {
    const std::size_t comma = text.find(',');
    if (auto part = parse_part(text.substr(0, comma), spec); !part) return tl::unexpected(part.error());
    if (comma == std::string_view::npos) return spec;
    text.remove_prefix(comma + 1);
  }
}

FaultPort::FaultPort(std::unique_ptr<PacketPort> inner, const FaultSpec& spec)
    : inner_(std::move(inner)), spec_(spec), random_(spec.seed) {}

std::size_t FaultPort::receive(const Sink& sink, std::size_t datagrams_max) {
  const std::size_t received =
      inner_->receive([&](const Datagram& datagram) { on_datagram(datagram, sink); }, datagrams_max);
  return received != 0 ? received : release_all(sink);
}

void FaultPort::on_datagram(const Datagram& datagram, const Sink& sink) {
  if (spec_.spare_unreliable && is_unreliable(datagram.payload)) {
    sink(datagram);
    return;
  }
  if (happens(spec_.loss)) {
    ++counters_.lost;
    return;
  }
  if (happens(spec_.reorder)) {
    ++counters_.reordered;
    held_.push_back({datagram.info,
                     {datagram.payload.begin(), datagram.payload.end()},
                     1 + static_cast<std::uint32_t>(random_.below(kPassesMax))});
    return;
  }
  deliver(datagram, sink);
  if (happens(spec_.duplicate)) {
    ++counters_.duplicated;
    deliver(datagram, sink);
  }
  count_passed(sink);
}

void FaultPort::deliver(const Datagram& datagram, const Sink& sink) {
  if (datagram.payload.empty() || !happens(spec_.corrupt)) {
    sink(datagram);
    return;
  }
  ++counters_.corrupted;
  std::vector<std::uint8_t> damaged(datagram.payload.begin(), datagram.payload.end());
  const std::uint64_t bit = random_.below(damaged.size() * 8);
  damaged[bit / 8] = static_cast<std::uint8_t>(damaged[bit / 8] ^ 1u << bit % 8);
  sink({datagram.info, damaged});
}

void FaultPort::count_passed(const Sink& sink) {
  for (Held& held : held_) --held.passes_left;
  while (true) {
    const auto due = std::find_if(held_.begin(), held_.end(), [](const Held& h) { return h.passes_left == 0; });
    if (due == held_.end()) return;
    const Held held = std::move(*due);
    held_.erase(due);
    deliver({held.info, held.payload}, sink);
  }
}

std::size_t FaultPort::release_all(const Sink& sink) {
  std::deque<Held> held;
  held.swap(held_);
  for (const Held& h : held) deliver({h.info, h.payload}, sink);
  return held.size();
}

}  // namespace ucm::net
