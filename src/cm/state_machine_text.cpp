// The table as text for docs/cm-state-machine.md.
#include "cm/state_machine.h"

namespace ucm::cm {
namespace {

State state_at(std::size_t i) { return static_cast<State>(i); }
Input input_at(std::size_t i) { return static_cast<Input>(i); }

// States and inputs in the diagram: one arrow per pair of states, labelled with all inputs that lead there.
std::string diagram() {
  std::string text = "```mermaid\nstateDiagram-v2\n  [*] --> req_sent : connect()\n  [*] --> req_received : REQ\n";
  for (std::size_t from = 0; from < kStateCount; ++from) {
    for (std::size_t to = 0; to < kStateCount; ++to) {
      if (from == to) continue;
      std::string inputs;
      for (std::size_t i = 0; i < kInputCount; ++i) {
        const Transition& cell = transition(state_at(from), input_at(i));
        if (cell.next == state_at(to)) (inputs += inputs.empty() ? "" : ", ") += name(input_at(i));
      }
      if (inputs.empty()) continue;
      (text += "  ").append(name(state_at(from))).append(" --> ").append(name(state_at(to)));
      text += " : " + inputs + "\n";
    }
  }
  return text + "```\n";
}

std::string cell_text(State state, Input input) {
  const Transition& cell = transition(state, input);
  if (cell.action == Action::kIgnore) return "·";
  if (cell.action == Action::kImpossible) return "–";
  std::string text(name(cell.action));
  if (cell.next != state) text.append(" → ").append(name(cell.next));
  return text;
}

}  // namespace

std::string describe_state_machine() {
  std::string text = diagram();
  text +=
      "\n`destroy` leads from every state to `gone` and is left out of the picture.\n\n"
      "## Every state, every input\n\n"
      "`action → next state`; no next state: it stays. `·` ignored and counted, `–` cannot happen (the engine "
      "checks).\n";
  for (std::size_t s = 0; s < kStateCount; ++s) {
    (text += "\n### ").append(name(state_at(s))) += "\n\n| input | action → next |\n|---|---|\n";
    for (std::size_t i = 0; i < kInputCount; ++i) {
      (text += "| ").append(name(input_at(i))).append(" | ").append(cell_text(state_at(s), input_at(i))) += " |\n";
    }
  }
  return text;
}

}  // namespace ucm::cm
