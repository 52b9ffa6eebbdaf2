// Any bytes as what a peer of rsockets writes: headers that parse emit the same, and a stream bears every message and
// every content of the memory that the peer may write to, while the program makes any calls.
#include <algorithm>
#include <deque>
#include <vector>

#include "base/check.h"
#include "rsocket/protocol/datagrams.h"
#include "rsocket/protocol/stream.h"

namespace {

using namespace ucm;
using namespace ucm::rsocket;

constexpr StreamSizes kSizes{
    .send_buffer = 4096, .receive_buffer = 4096, .send_queue = 16, .receive_queue = 16, .iomap = 2};

class Input {
 public:
  explicit Input(Bytes bytes) : bytes_(bytes) {}
  bool at_end() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::uint32_t word() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | byte();
    return value;
  }
  Bytes some(std::size_t size) {
    const Bytes taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  Bytes bytes_;
};

template <class Header>
void check_header(Bytes input) {
  const auto header = Header::parse(input);
  if (!header) return;
  std::vector<std::uint8_t> bytes(Header::kSizeMax);
  header->emit(bytes.data());
  bytes.resize(header->size());
  UCM_CHECK(Header::parse(bytes) == header);
}

class Driver {
 public:
  explicit Driver(const ConnectionData& peer)
      : remote_(Stream::remote_block_size(kSizes)),
        local_(Stream::local_block_size(kSizes)),
        stream_(kSizes, remote_, local_, 1) {
    stream_.connected(peer);
  }

  void step(Input& input) {
    std::vector<std::uint8_t> data(1 + input.byte() * 16u);
    switch (input.byte() % 12) {
      case 0:
      case 1: {
        const std::uint32_t written = input.byte() % 32;
        stream_.on_message(input.word(), written);
        break;
      }
      case 2: {
        const std::size_t at = input.byte() % (2 * kBufferEntrySize + 2 * kIoMapEntrySize);
        const Bytes bytes = input.some(input.byte() % 32);
        std::copy(bytes.begin(), bytes.end(), remote_.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      }
      case 3:
        UCM_CHECK(stream_.receive(data, ReceiveMode::kTake) <= data.size());
        break;
      case 4:
        UCM_CHECK(stream_.receive(data, ReceiveMode::kPeek) <= data.size());
        break;
      case 5: {
        const bool might = stream_.may_send();
        UCM_CHECK((stream_.send(data) != 0) == might);
        break;
      }
      case 6:
        UCM_CHECK(stream_.write_mapped(input.word(), data) <= data.size());
        break;
      case 7:
        if (const auto index = stream_.map(input.word(), {1, 2, 3})) maps_.push_back(*index);
        break;
      case 8:
        if (maps_.empty()) break;
        stream_.unmap(maps_.back());
        maps_.pop_back();
        break;
      case 9:
        input.byte() % 2 != 0 ? stream_.shut_down_sending() : stream_.shut_down_receiving();
        break;
      case 10:
        stream_.send_keepalive();
        break;
      default:
        complete_one();
    }
    post();
  }

  void finish() {
    while (!posted_.empty()) complete_one();
    UCM_CHECK(stream_.idle() || stream_.connected());
  }

 private:
  void post() {
    while (const auto write = stream_.poll_write()) {
      UCM_CHECK(write->offset + write->length <= local_.size());
      posted_.push_back(*write);
      UCM_CHECK(posted_.size() <= kSizes.send_queue);
    }
  }
  void complete_one() {
    if (posted_.empty()) return;
    stream_.on_written(posted_.front().kind, posted_.front().held);
    posted_.pop_front();
  }

  std::vector<std::uint8_t> remote_;
  std::vector<std::uint8_t> local_;
  Stream stream_;
  std::deque<Stream::Write> posted_;
  std::vector<std::uint16_t> maps_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes(data, size);
  check_header<DatagramHeader>(bytes);
  check_header<UdpHeader>(bytes);
  const auto peer = ConnectionData::parse(bytes);
  if (!peer) return 0;
  UCM_CHECK(ConnectionData::parse(peer->emit()) == peer);
  Input input(bytes.subspan(ConnectionData::kSize));
  Driver driver(*peer);
  while (!input.at_end()) driver.step(input);
  driver.finish();
  return 0;
}
