#include "explore/scenarios.h"

namespace ucm::explore {

std::vector<Scenario> quick_scenarios() {
  return {
      {.name = "one", .losses = 1, .duplicates = 1},
      {.name = "one_early_timer", .losses = 1, .duplicates = 1, .early_timers = 1},
      {.name = "one_never_forgotten",
       .destroys_idle = true,
       .cm_retries = 2,
       .losses = 2,
       .loses_rejections = false,
       .duplicates = 1},
      {.name = "one_three_losses", .destroys_idle = true, .cm_retries = 3, .losses = 3, .duplicates = 1},
      {.name = "one_asynchronous", .asynchronous = true},
      {.name = "one_asynchronous_duplicates",
       .destroys_idle = true,
       .cm_retries = 0,
       .duplicates = 2,
       .asynchronous = true},
      {.name = "two", .connects = {2, 0}},
      {.name = "two_held_back", .connects = {2, 0}, .window = 1, .destroys_idle = true, .losses = 1},
      {.name = "two_crossing", .connects = {1, 1}, .destroys_idle = true},
      {.name = "two_same_qp", .connects = {2, 0}, .reuses_qp = true, .losses = 1},
      {.name = "one_listener_closed", .closes_listener = true, .destroys_idle = true, .losses = 1, .duplicates = 1},
      {.name = "one_unread", .reads_late = true, .destroys_idle = true, .losses = 1, .duplicates = 1},
      {.name = "two_unread", .connects = {2, 0}, .closes_listener = true, .reads_late = true, .destroys_idle = true},
  };
}

std::vector<Scenario> long_scenarios() {
  return {
      {.name = "one_long", .destroys_idle = true, .cm_retries = 3, .losses = 3, .duplicates = 2},
      {.name = "one_few_tries_long", .cm_retries = 1, .losses = 3, .duplicates = 2},
      {.name = "one_asynchronous_long", .destroys_idle = true, .duplicates = 1, .asynchronous = true},
      {.name = "two_long", .connects = {2, 0}, .destroys_idle = true, .losses = 1, .duplicates = 1},
      {.name = "two_crossing_long", .connects = {1, 1}, .destroys_idle = true, .losses = 1, .duplicates = 1},
      {.name = "two_same_qp_long",
       .connects = {2, 0},
       .reuses_qp = true,
       .destroys_idle = true,
       .losses = 1,
       .duplicates = 1},
  };
}

}  // namespace ucm::explore
