#include "cli/settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

namespace ucm::cli {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string wrong(const std::string& text) {
  const auto settings = parse_settings(text, "a.toml");
  return settings ? "" : settings.error().message;
}

TEST(Settings, WhatIsNotSaidHasItsDefault) {
  const auto settings = parse_settings("[log]\nlevel = \"debug\"\n[limits.user]\nids = 7\n", "a.toml");
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->log_level, "debug");
  EXPECT_EQ(settings->limits.user.most[static_cast<std::size_t>(node::Resource::kIds)], 7u);
  EXPECT_EQ(settings->limits.program.most, node::Limits{}.program.most);
  EXPECT_EQ(settings->flight_records, Settings{}.flight_records);
}

TEST(Settings, AFaultIsToldWithLineAndColumn) {
  EXPECT_EQ(wrong("[log]\nlevel = \"loud\"\n"),
            "a.toml:2:9: log.level must be one of \"debug\", \"info\", \"warning\", \"error\", \"off\"");
  EXPECT_EQ(wrong("\n[node]\nflight_recorder = 1\n"), "a.toml:3:1: there is no setting node.flight_recorder");
  EXPECT_EQ(wrong("[nodes]\n"), "a.toml:1:2: there is no setting nodes");
  EXPECT_EQ(wrong("[node]\nflight_records = 1000\n"),
            "a.toml:2:18: node.flight_records must be a power of two up to 16777216, or 0");
  EXPECT_EQ(wrong("node.idle_exit_s = -1\n"), "a.toml:1:20: node.idle_exit_s must be a number of seconds, 0 or more");
  EXPECT_EQ(wrong("[limits.user]\nprograms = 1.5\n"),
            "a.toml:2:12: limits.user.programs must be a whole number from 0 to 2048");
  EXPECT_EQ(wrong("limits.user = 5\n"), "a.toml:1:15: limits.user is a table: [limits.user]");
  EXPECT_EQ(wrong("[limits.program]\nprograms = 5\n"), "a.toml:2:1: there is no setting limits.program.programs");
  EXPECT_EQ(wrong("[log]\nfile = \"ucmd.log\"\n"), "a.toml:2:8: log.file must be a path that begins with /, or empty");
  EXPECT_EQ(wrong("[node]\nmetrics = \"localhost:9477\"\n"),
            "a.toml:2:11: node.metrics must be PORT, ADDRESS:PORT or [ADDRESS]:PORT, or empty");
  EXPECT_EQ(wrong("[node]\nmetrics = 9477\n"),
            "a.toml:2:11: node.metrics must be a text, \"PORT\" or \"ADDRESS:PORT\"");
  EXPECT_EQ(wrong("[log\n").substr(0, 9), "a.toml:1:") << "no TOML at all";
}

TEST(Settings, AFileThatIsNotThereIsNamed) {
  const auto settings = read_settings("/nonexistent/ucmd.toml");
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().message, "/nonexistent/ucmd.toml: cannot be read: No such file or directory");
}

// The file that is installed, and the manual, have every setting; and what the file says is the default is it.
TEST(Settings, TheExampleHasEverySettingWithItsDefault) {
  const std::string example = read_text(UCM_SOURCE_DIR "/packaging/ucmd.toml");
  EXPECT_EQ(wrong(example), "");
  const std::string active = std::regex_replace(example, std::regex("(^|\n)#([a-z_]+ = )"), "$1$2");
  const auto settings = parse_settings(active, "packaging/ucmd.toml");
  ASSERT_TRUE(settings) << settings.error().message;
  const Settings defaults;
  EXPECT_EQ(settings->flight_records, defaults.flight_records);
  EXPECT_EQ(settings->idle_exit_s, defaults.idle_exit_s);
  EXPECT_EQ(settings->metrics, defaults.metrics);
  EXPECT_EQ(settings->log_level, defaults.log_level);
  EXPECT_EQ(settings->log_format, defaults.log_format);
  EXPECT_EQ(settings->log_file, defaults.log_file);
  for (auto share : {&node::Limits::program, &node::Limits::user}) {
    EXPECT_EQ((settings->limits.*share).most, (defaults.limits.*share).most);
    EXPECT_EQ((settings->limits.*share).connects_per_s, (defaults.limits.*share).connects_per_s);
  }
  const auto count = [](const std::string& text, const std::regex& pattern) {
    return std::distance(std::sregex_iterator(text.begin(), text.end(), pattern), std::sregex_iterator());
  };
  const std::vector<std::string> names = setting_names();
  EXPECT_EQ(static_cast<std::size_t>(count(example, std::regex("\n#[a-z_]+ = "))), names.size());
  const std::string manual = read_text(UCM_SOURCE_DIR "/docs/man/ucmd.toml.5");
  for (const std::string& name : names) {
    const std::string key = name.substr(name.rfind('.') + 1);
    EXPECT_NE(example.find("\n#" + key + " = "), std::string::npos) << name;
    EXPECT_NE(manual.find(".B " + key + "\n"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace ucm::cli
