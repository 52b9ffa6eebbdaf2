# Bugs planted on purpose: the engine once more with one line changed, and an exploration that has to find it.
#   ucm_planted(NAME FILE TEXT REPLACEMENT SCENARIO EXPECTED)
# TEXT stands in src/cm/FILE; the violation found in SCENARIO must contain EXPECTED.
function(ucm_planted name file text replacement scenario expected)
  set(source ${PROJECT_SOURCE_DIR}/src/cm/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} content)
  string(FIND "${content}" "${text}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "tests/explore/planted.cmake: src/cm/${file} has changed and no longer contains\n  ${text}\n"
                        "Plant the bug ${name} in the new text.")
  endif()
  string(REPLACE "${text}" "${replacement}" content "${content}")
  set(planted ${CMAKE_CURRENT_BINARY_DIR}/planted/${name}/${file})
  file(CONFIGURE OUTPUT ${planted} CONTENT "${content}" @ONLY)
  # The linker finds the changed file's symbols here and never takes the right ones from the library.
  add_executable(explore_${name} explore_main.cpp ${planted})
  target_link_libraries(explore_${name} PRIVATE ucm_explore)
  target_compile_options(explore_${name} PRIVATE -w)  # a line taken out leaves variables without use
  add_test(NAME explore_cm.finds_${name} COMMAND explore_${name} --expect ${expected} ${scenario})
endfunction()

# One rule of the state machine.
ucm_planted(ignored_rep state_machine.cpp
            "{State::kEstablished, Input::kRep, Action::kSendRtu, State::kEstablished}"
            "{State::kEstablished, Input::kRep, Action::kIgnore, State::kEstablished}" one "gives up")
ucm_planted(ignored_dreq state_machine.cpp
            "{State::kTimewait, Input::kDreq, Action::kSendDrep, State::kTimewait}"
            "{State::kTimewait, Input::kDreq, Action::kIgnore, State::kTimewait}" one "gives up")
ucm_planted(silent_destroy state_machine.cpp
            "{State::kReqReceived, Input::kDestroy, Action::kSendRej, State::kGone}"
            "{State::kReqReceived, Input::kDestroy, Action::kNothing, State::kGone}" one "gives up")
ucm_planted(forgotten_disconnect state_machine.cpp
            "{State::kDreqSent, Input::kDestroy, Action::kNothing, State::kOrphaned}"
            "{State::kDreqSent, Input::kDestroy, Action::kNothing, State::kGone}" one_never_forgotten "has destroyed")
ucm_planted(forgotten_destroy state_machine.cpp
            "{State::kEstablished, Input::kDestroy, Action::kSendDreq, State::kOrphaned}"
            "{State::kEstablished, Input::kDestroy, Action::kSendDreq, State::kGone}" one_never_forgotten "has destroyed")
ucm_planted(deaf_orphan state_machine.cpp
            "{State::kOrphaned, Input::kDrep, Action::kNothing, State::kGone}"
            "{State::kOrphaned, Input::kDrep, Action::kIgnore, State::kOrphaned}" one "gives up")
ucm_planted(rude_orphan state_machine.cpp
            "{State::kOrphaned, Input::kDreq, Action::kSendDrep, State::kGone}"
            "{State::kOrphaned, Input::kDreq, Action::kNothing, State::kOrphaned}" one "gives up")
ucm_planted(established_twice state_machine.cpp
            "{State::kRepSent, Input::kNotify, Action::kReportEstablished, State::kEstablished}"
            "{State::kRepSent, Input::kNotify, Action::kReportEstablished, State::kRepSent}" one "rep_sent")
ucm_planted(impossible_repetition state_machine.cpp
            "{State::kReqReceived, Input::kReq, Action::kSendMra, State::kReqReceived}"
            "{State::kReqReceived, Input::kReq, Action::kImpossible, State::kReqReceived}" one "check failed")
# One line of the engine. The first needs two connections and a loss.
ucm_planted(lost_turn peers.cpp "    peer.shrunk_at = now;
  }
  take_turns(request.peer);" "    peer.shrunk_at = now;
  }" two_held_back "held back")
ucm_planted(forgotten_turn engine.cpp "if (delivered) report_requests(now, listener)" "(void)delivered" two_unread
            "nothing to read")
ucm_planted(slot_in_message outgoing.cpp "mra.service_timeout = config_.mra_service_timeout"
            "mra.service_timeout = config_.mra_service_timeout + slot" one "keeps its connections")
ucm_planted(forgotten_table_entry engine.cpp
            "if (occupies_peer(before) && !occupies_peer(next) && c.remote_comm_id != 0) forget_peer(slot)"
            "if (false) forget_peer(slot)" one "tables of peers")
ucm_planted(handle_twice engine.cpp "++c.generation" "(void)c" one "handle")
ucm_planted(overtaken_rep incoming.cpp "by_both = peer_is_known &&" "by_both = true || peer_is_known ||"
            one "counts on a connection")
ucm_planted(swapped_drep outgoing.cpp "drep.local_comm_id = local_comm_id" "drep.local_comm_id = remote_comm_id"
            one "gives up")
