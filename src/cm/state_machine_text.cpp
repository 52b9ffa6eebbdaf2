// The tables as text for docs/cm-state-machine.md.
#include "cm/sidr_state_machine.h"
#include "cm/state_machine.h"

namespace ucm::cm {
namespace {

// `State`, `Input` and `Action` are the enums of one table, found by transition() and name().
template <class State, class Input, class Action>
struct Description {
  std::size_t state_count;
  std::size_t input_count;
  std::string_view beginnings;  // the diagram's arrows from nothing

  static State state_at(std::size_t i) { return static_cast<State>(i); }
  static Input input_at(std::size_t i) { return static_cast<Input>(i); }

  // States and inputs in the diagram: one arrow per pair of states, labelled with all inputs that lead there. What
  // destroy() ends is left out.
  std::string diagram() const {
    std::string text = "```mermaid\nstateDiagram-v2\n";
    text += beginnings;
    for (std::size_t from = 0; from < state_count; ++from) {
      for (std::size_t to = 0; to <= state_count; ++to) {
        if (from == to) continue;
        const bool gone = to == state_count;
        std::string inputs;
        for (std::size_t i = 0; i < input_count; ++i) {
          const auto& cell = transition(state_at(from), input_at(i));
          if (gone && input_at(i) == Input::kDestroy) continue;
          if (cell.next == state_at(to)) (inputs += inputs.empty() ? "" : ", ") += name(input_at(i));
        }
        if (inputs.empty()) continue;
        (text += "  ").append(name(state_at(from))).append(" --> ").append(gone ? "[*]" : name(state_at(to)));
        text += " : " + inputs + "\n";
      }
    }
    return text + "```\n";
  }

  static std::string cell_text(State state, Input input) {
    const auto& cell = transition(state, input);
    if (cell.action == Action::kIgnore) return "·";
    if (cell.action == Action::kImpossible) return "–";
    std::string text(name(cell.action));
    if (cell.next != state) text.append(" → ").append(name(cell.next));
    return text;
  }

  std::string matrix() const {
    std::string text;
    for (std::size_t s = 0; s < state_count; ++s) {
      (text += "\n### ").append(name(state_at(s))) += "\n\n| input | action → next |\n|---|---|\n";
      for (std::size_t i = 0; i < input_count; ++i) {
        (text += "| ").append(name(input_at(i))).append(" | ").append(cell_text(state_at(s), input_at(i))) += " |\n";
      }
    }
    return text;
  }
};

}  // namespace

std::string describe_state_machine() {
  constexpr Description<State, Input, Action> kDescription{
      kStateCount, kInputCount, "  [*] --> req_sent : connect()\n  [*] --> req_received : REQ\n"};
  return kDescription.diagram() +
         "\n`destroy` leads from every state to its end, `gone`, where the picture does not show another way. In "
         "`orphaned` the\n"
         "application has no handle any more.\n\n"
         "## Every state, every input\n\n"
         "`action → next state`; no next state: it stays. `·` ignored and counted, `–` cannot happen (the engine "
         "checks).\n" +
         kDescription.matrix();
}

std::string describe_sidr_state_machine() {
  constexpr Description<SidrState, SidrInput, SidrAction> kDescription{
      kSidrStateCount, kSidrInputCount,
      "  [*] --> sidr_req_sent : sidr_connect()\n  [*] --> sidr_req_received : SIDR_REQ\n"};
  return kDescription.diagram() + "\n`destroy` leads from every state to `sidr_gone`.\n" + kDescription.matrix();
}

}  // namespace ucm::cm
