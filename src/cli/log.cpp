#include "cli/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

namespace ucm::cli {
namespace {

// The message as a JSON string.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string text = nlohmann::json(std::string(message.payload.data(), message.payload.size()))
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<JsonMessage>(); }
};

// What journald and others take from the beginning of a line.
class Priority final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const char digit = message.level >= spdlog::level::err    ? '3'
                       : message.level == spdlog::level::warn ? '4'
                       : message.level == spdlog::level::info ? '6'
                                                              : '7';
    out.push_back('<');
    out.push_back(digit);
    out.push_back('>');
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<Priority>(); }
};

std::unique_ptr<spdlog::formatter> formatter_of(const Settings& settings) {
  const bool journal = settings.log_file.empty() && std::getenv("JOURNAL_STREAM") != nullptr;
  std::string pattern = settings.log_format == "json"
                            ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","pid":%P,"message":%*})"
                        : journal ? "%v"
                                  : "[%Y-%m-%d %H:%M:%S.%e] [%^%l%$] %v";
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<JsonMessage>('*').add_flag<Priority>('&');
  formatter->set_pattern((journal ? "%&" : "") + pattern);
  return formatter;
}

}  // namespace

Result<void> set_up_log(const Settings& settings) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  try {
    if (settings.log_file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(settings.log_file);
    }
  } catch (const spdlog::spdlog_ex& error) {
    return fail(EIO, error.what());
  }
  auto logger = std::make_shared<spdlog::logger>("ucmd", std::move(sink));
  logger->set_formatter(formatter_of(settings));
  logger->set_level(spdlog::level::from_str(settings.log_level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

void write_log(daemon::LogLevel level, const std::string& text) {
  switch (level) {
    case daemon::LogLevel::kDebug:
      return spdlog::debug("{}", text);
    case daemon::LogLevel::kInfo:
      return spdlog::info("{}", text);
    case daemon::LogLevel::kWarning:
      return spdlog::warn("{}", text);
  }
}

}  // namespace ucm::cli
