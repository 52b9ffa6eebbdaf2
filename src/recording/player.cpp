#include "recording/player.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace ucm::recording {
namespace {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

}  // namespace

Result<std::unique_ptr<Player>> Player::open(Bytes file, std::function<void(Bytes)> copy) {
  auto header = parse_header(file);
  if (!header) return tl::unexpected(header.error());
  std::unique_ptr<Player> player(new Player(file, std::move(copy)));
  player->header_ = std::move(*header);
  const auto first = player->reader_.next();
  if (!first) return tl::unexpected(first.error());
  const auto* const start = std::get_if<Start>(&first->record);
  if (start == nullptr) return fail(EPROTO, "it does not begin with a start");
  player->start(*start);
  return player;
}

void Player::start(const Start& start) {
  started_at_ = start.now;
  engine_.record(start.now, start.config, [this](Bytes record) {
    made_.assign(record.begin(), record.end());
    if (copy_) copy_(record);
    return true;
  });
  take_outputs();
}

void Player::play() {
  UCM_CHECK(upcoming_);
  const Item input = *std::exchange(upcoming_, std::nullopt);
  ++played_;
  give(input.record);
  compare(input);
  if (goes_on()) take_outputs();
}

void Player::take_outputs() {
  while (goes_on()) {
    auto item = reader_.next();
    if (!item) {
      error_ = item.error();
      return;
    }
    if (const std::uint8_t kind = output_kind(item->record); kind != 0) {
      made_.clear();
      take(kind);
      compare(*item);
      continue;
    }
    drain(item->drained);
    if (!goes_on() || std::holds_alternative<End>(item->record)) return;
    if (std::holds_alternative<Start>(item->record)) {
      error_ = Error{EPROTO, "it starts twice"};
    } else {
      upcoming_ = std::move(*item);
    }
    return;
  }
}

void Player::drain(std::uint8_t kinds) {
  for (const std::uint8_t kind : {kEvents, kSidrEvents, kPackets}) {
    while ((kinds & kind) != 0 && goes_on() && take(kind)) differ(std::nullopt);
  }
}

void Player::compare(const Item& recorded) {
  if (!std::ranges::equal(made_, recorded.bytes)) differ(recorded);
}

void Player::differ(std::optional<Item> recorded) {
  if (!difference_) difference_ = Difference{.input = played_, .recorded = std::move(recorded), .played = made_};
}

bool Player::take(std::uint8_t kind) {
  switch (kind) {
    case kPackets: {
      const cm::Packet* const packet = engine_.poll_packet();
      if (packet != nullptr && on_sent) on_sent(*packet);
      return packet != nullptr;
    }
    case kEvents: {
      const auto event = engine_.poll_event();
      if (event && on_told) on_told(*event);
      return event.has_value();
    }
    default: {
      const auto event = engine_.poll_sidr_event();
      if (event && on_sidr_told) on_sidr_told(*event);
      return event.has_value();
    }
  }
}

void Player::give(const Record& input) {
  std::visit(Overloaded{
                 [&](const Listen& x) { (void)engine_.listen(x.params); },
                 [&](const CloseListener& x) { engine_.close_listener(x.now, x.listener); },
                 [&](const Connect& x) { (void)engine_.connect(x.now, x.params); },
                 [&](const SetUser& x) { engine_.set_user(x.connection, x.user); },
                 [&](const Accept& x) { (void)engine_.accept(x.now, x.connection, x.params); },
                 [&](const Reject& x) { (void)engine_.reject(x.now, x.connection, x.params); },
                 [&](const RequestTaken& x) { engine_.request_taken(x.now, x.connection); },
                 [&](const Establish& x) { (void)engine_.establish(x.now, x.connection); },
                 [&](const Notify& x) { (void)engine_.notify_established(x.now, x.connection); },
                 [&](const Disconnect& x) { engine_.disconnect(x.now, x.connection); },
                 [&](const Destroy& x) { engine_.destroy(x.now, x.connection); },
                 [&](const SidrConnect& x) { (void)engine_.sidr_connect(x.now, x.params); },
                 [&](const SidrRequestTaken& x) { engine_.sidr_request_taken(x.exchange); },
                 [&](const SidrSetUser& x) { engine_.sidr_set_user(x.exchange, x.user); },
                 [&](const SidrAccept& x) { (void)engine_.sidr_accept(x.now, x.exchange, x.params); },
                 [&](const SidrReject& x) { (void)engine_.sidr_reject(x.now, x.exchange, x.private_data); },
                 [&](const SidrDestroy& x) { engine_.sidr_destroy(x.now, x.exchange); },
                 [&](const Received& x) { engine_.on_packet(x.now, x.path, x.mad); },
                 [&](const Deadline& x) { engine_.on_deadline(x.now); },
                 [&](const auto&) {},  // no input
             },
             input);
}

}  // namespace ucm::recording
