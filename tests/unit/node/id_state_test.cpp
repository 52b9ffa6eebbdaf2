#include "node/id_state.h"

#include <gtest/gtest.h>

#include <string>

namespace ucm::node {
namespace {

// Every state (rows) and input (columns); "." is refused or not told.
//                       bind rsaddr route listen conn accept reject estab notify disc join found failed event discd tw
constexpr const char* kMatrix[kIdStateCount] = {
    /* idle           */ "B Q . L . . . . . . . . . . . .",
    /* bound          */ ". Q . L . . . . . . B . . . . .",
    /* listen         */ ". . . . . . . . . . . . . . . .",
    /* resolving      */ ". . . . . . . . . . . A B . . .",
    /* resolved       */ ". . R . . . . . . . A . . . . .",
    /* route resolved */ ". . . . C . . . . . . . . . . .",
    /* connect        */ ". . . . . C C C C C . . . C D .",
    /* disconnect     */ ". . . . . . . . . D . . . . . D",
};

TEST(IdState, TheWholeMatrix) {
  constexpr std::string_view kLetters = "IBLQARCD";
  for (std::size_t state = 0; state < kIdStateCount; ++state) {
    std::string row;
    for (std::size_t input = 0; input < kIdInputCount; ++input) {
      const auto next = next_state(static_cast<IdState>(state), static_cast<IdInput>(input));
      if (input != 0) row += ' ';
      row += next ? kLetters[static_cast<std::size_t>(*next)] : '.';
    }
    EXPECT_EQ(row, kMatrix[state]) << to_string(static_cast<IdState>(state));
  }
}

}  // namespace
}  // namespace ucm::node
