#include "recording/coding.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wire/headers.h"
#include "wire/icrc.h"

namespace ucm::recording {
namespace {

constexpr std::array<std::uint8_t, 6> kMagic{'U', 'C', 'M', 'R', 'E', 'C'};
constexpr std::size_t kWriterSize = 32;
constexpr std::size_t kFieldsOffset = 2;  // in the body
// Times that are added to each other stay within 64 bits.
constexpr TimeNs kTimeMax = TimeNs{1} << 61;
constexpr TimeNs kWaitMax = 3600 * kNanosecondsPerSecond;

std::uint32_t checksum(Bytes bytes) { return ~wire::crc32(~0u, bytes); }

template <class T>
using WordOf = std::make_unsigned_t<
    typename std::conditional_t<std::is_enum_v<T>, std::underlying_type<T>, std::type_identity<T>>::type>;

class Emitter {
 public:
  explicit Emitter(std::vector<std::uint8_t>& out) : out_(out) {}

  template <class T>
  Emitter& operator()(const char*, T& value) {
    put(value);
    return *this;
  }

 private:
  template <Number T>
  void put(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      out_.push_back(value ? 1 : 0);
    } else {
      const auto word = static_cast<WordOf<T>>(value);
      for (std::size_t i = sizeof word; i-- > 0;) out_.push_back(static_cast<std::uint8_t>(word >> 8 * i));
    }
  }
  void put_bytes(Bytes bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  void put(Bytes bytes) {
    put(static_cast<std::uint16_t>(bytes.size()));
    put_bytes(bytes);
  }
  template <std::size_t N>
  void put(const std::array<std::uint8_t, N>& bytes) {
    put_bytes(bytes);
  }
  template <std::size_t N>
  void put(const InlineBytes<N>& bytes) {
    put(bytes.view());
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    put(value.value_or(T{}));
  }
  template <Structure T>
  void put(T& value) {
    transfer(*this, value);
  }

  std::vector<std::uint8_t>& out_;
};

class Parser {
 public:
  explicit Parser(Bytes bytes) : left_(bytes) {}

  template <class T>
  Parser& operator()(const char*, T& value) {
    get(value);
    return *this;
  }
  // Every field was there, and nothing behind them.
  bool finished() const { return sound_ && left_.empty(); }

 private:
  // Empty when there is less.
  Bytes take(std::size_t size) {
    if (left_.size() < size) sound_ = false;
    if (!sound_) return {};
    const Bytes taken = left_.first(size);
    left_ = left_.subspan(size);
    return taken;
  }
  template <Number T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      get(byte);
      if (byte > 1) sound_ = false;
      value = byte == 1;
    } else {
      WordOf<T> word = 0;
      for (const std::uint8_t byte : take(sizeof word)) word = static_cast<WordOf<T>>(std::uint64_t{word} << 8 | byte);
      value = static_cast<T>(word);
    }
  }
  void get(Bytes& bytes) {
    std::uint16_t size = 0;
    get(size);
    bytes = take(size);
  }
  template <std::size_t N>
  void get(std::array<std::uint8_t, N>& bytes) {
    std::ranges::copy(take(N), bytes.begin());
  }
  template <std::size_t N>
  void get(InlineBytes<N>& bytes) {
    Bytes view;
    get(view);
    if (view.size() > N) sound_ = false;
    if (sound_) bytes.assign(view);
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool there = false;
    T content{};
    get(there);
    get(content);
    if (there) value = content;
    if (!there) value.reset();
  }
  template <Structure T>
  void get(T& value) {
    transfer(*this, value);
  }

  Bytes left_;
  bool sound_ = true;
};

// What the engine takes for granted of its caller.
bool is_possible(wire::TransportService transport) { return transport <= wire::TransportService::kExtended; }
bool is_possible(const cm::Recovery& r) {
  const auto waits = {r.shortest,      r.shortest_foreign,   r.longest,        r.longest_foreign, r.last_words_foreign,
                      r.first_contact, r.first_sidr_contact, r.longest_backoff};
  return r.jitter_percent <= 100 &&
         std::ranges::all_of(waits, [](TimeNs wait) { return wait >= 0 && wait <= kWaitMax; });
}
bool is_possible(const Start& x) {
  const cm::Config& c = x.config;
  return c.shard < 16 && c.cm_response_timeout < 32 && c.max_cm_retries < 16 && c.mra_service_timeout < 32 &&
         c.target_ack_delay < 32 && is_possible(c.recovery);
}
bool is_possible(const Listen& x) { return is_possible(x.params.transport.value_or(wire::TransportService::kRc)); }
bool is_possible(const cm::Path& path) { return path.local.is_ipv4() == path.remote.is_ipv4(); }
bool is_possible(const Connect& x) { return is_possible(x.params.transport) && is_possible(x.params.path); }
bool is_possible(const SidrConnect& x) { return is_possible(x.params.path); }
bool is_possible(const SidrAccept& x) { return x.params.qpn <= wire::kMask24; }
template <class T>
bool is_possible(const T&) {
  return true;
}

template <class T>
std::optional<Record> parse_as(Bytes fields) {
  T record{};
  Parser parser(fields);
  transfer(parser, record);
  if (!parser.finished() || !is_possible(record)) return std::nullopt;
  return record;
}

template <std::size_t... kIndex>
std::optional<Record> parse_any(std::size_t kind, Bytes fields, std::index_sequence<kIndex...>) {
  std::optional<Record> record;
  (void)((kind == kIndex && (record = parse_as<std::variant_alternative_t<kIndex, Record>>(fields), true)) || ...);
  return record;
}

}  // namespace

std::array<std::uint8_t, kHeaderSize> emit_header(const Header& header) {
  std::array<std::uint8_t, kHeaderSize> out{};
  std::ranges::copy(kMagic, out.begin());
  store_be16(&out[6], kVersion);
  store_be64(&out[8], static_cast<std::uint64_t>(header.wall_offset_ns));
  std::copy_n(header.writer.begin(), std::min(header.writer.size(), kWriterSize), &out[16]);
  return out;
}

Result<Header> parse_header(Bytes file) {
  if (file.size() < kHeaderSize || !std::equal(kMagic.begin(), kMagic.end(), file.begin())) {
    return fail(EPROTO, "it is no recording of `ucm record`");
  }
  if (const std::uint16_t version = load_be16(&file[6]); version != kVersion) {
    return fail(EPROTONOSUPPORT, "it is a recording of version " + std::to_string(version) +
                                     ", and this ucm knows version " + std::to_string(kVersion));
  }
  const auto* const writer = reinterpret_cast<const char*>(&file[16]);
  return Header{.wall_offset_ns = static_cast<std::int64_t>(load_be64(&file[8])),
                .writer = std::string(writer, strnlen(writer, kWriterSize))};
}

std::optional<TimeNs> time_of(const Record& record) {
  return std::visit(
      [](const auto& r) -> std::optional<TimeNs> {
        if constexpr (requires { r.now; }) return r.now;
        return std::nullopt;
      },
      record);
}

std::uint8_t output_kind(const Record& record) {
  if (std::holds_alternative<Sent>(record)) return kPackets;
  if (std::holds_alternative<Told>(record)) return kEvents;
  return std::holds_alternative<SidrTold>(record) ? kSidrEvents : 0;
}

void emit(const Record& record, std::uint8_t drained, std::vector<std::uint8_t>& out) {
  const std::size_t start = out.size();
  out.resize(start + kFrameSize);
  out.push_back(static_cast<std::uint8_t>(record.index()));
  out.push_back(drained);
  Emitter emitter(out);
  std::visit(
      [&](auto fields) {  // a copy: archives take references
        transfer(emitter, fields);
      },
      record);
  const Bytes body = Bytes(out).subspan(start + kFrameSize);
  store_be32(&out[start], static_cast<std::uint32_t>(body.size()));
  store_be32(&out[start + 4], checksum(body));
}

Result<Item> parse(Bytes bytes) {
  if (bytes.empty()) return fail(EPROTO, "it is cut off: there is no end");
  if (bytes.size() < kFrameSize) return fail(EPROTO, "it is cut off in the middle of a record");
  const std::size_t size = load_be32(bytes.data());
  if (size < kFieldsOffset || size > kBodySizeMax) return fail(EPROTO, "it is damaged: no record has this size");
  if (bytes.size() - kFrameSize < size) return fail(EPROTO, "it is cut off in the middle of a record");
  const Bytes body = bytes.subspan(kFrameSize, size);
  if (checksum(body) != load_be32(&bytes[4])) return fail(EPROTO, "it is damaged: a checksum is wrong");
  auto record =
      parse_any(body[0], body.subspan(kFieldsOffset), std::make_index_sequence<std::variant_size_v<Record>>());
  if (!record) return fail(EPROTO, "it has a record that makes no sense");
  return Item{.drained = body[1], .record = std::move(*record), .bytes = bytes.first(kFrameSize + size)};
}

Result<Item> Reader::next() {
  auto item = parse(file_.subspan(offset_));
  if (item) {
    const TimeNs now = time_of(item->record).value_or(now_);
    if (now < now_ || now > kTimeMax) item = fail(EPROTO, "its time goes back, or too far");
    now_ = now;
  }
  if (!item) return fail(EPROTO, item.error().message + ", at byte " + std::to_string(offset_));
  item->offset = offset_;
  offset_ += item->bytes.size();
  return item;
}

}  // namespace ucm::recording
