// Arguments, options, errors of the node, what is not supported, and name resolution.

#include <cstdlib>

#include "unit/rdma/rdma_fixture.h"

// Newer than Debian's header.
extern "C" {
int rdma_write_cm_event(rdma_cm_id* id, int event, int status, std::uint64_t arg);
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service, const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
}

namespace ucm::test {
namespace {

using ipc::CmCall;

class InterfaceTest : public RdmaTest {
 protected:
  void expect_errno(int result, int error) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, error);
  }
};

TEST_F(InterfaceTest, PortSpacesDecideTheQpType) {
  for (const auto& [port_space, qp_type] : {std::pair{RDMA_PS_TCP, IBV_QPT_RC},
                                            {RDMA_PS_IB, IBV_QPT_RC},
                                            {RDMA_PS_UDP, IBV_QPT_UD},
                                            {RDMA_PS_IPOIB, IBV_QPT_UD}}) {
    rdma_cm_id* id = make_id(port_space);
    EXPECT_EQ(id->qp_type, qp_type);
    EXPECT_EQ(id->ps, port_space);
    EXPECT_EQ(node().last(CmCall::kCreateId).port_space, port_space);
    rdma_destroy_id(id);
  }
  rdma_cm_id* id = nullptr;
  expect_errno(rdma_create_id(channel_, &id, nullptr, static_cast<rdma_port_space>(0x100)), EINVAL);
}

TEST_F(InterfaceTest, AConnectionInAPortSpaceOfDatagramsGoesNoFurtherThanBinding) {
  rdma_addrinfo info{};
  info.ai_flags = RAI_PASSIVE;
  info.ai_port_space = RDMA_PS_UDP;
  info.ai_qp_type = IBV_QPT_RC;
  sockaddr_in any = ipv4("10.0.0.1", 0);
  info.ai_src_addr = generic(any);
  info.ai_src_len = sizeof any;
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_ep(&id, &info, nullptr, nullptr), 0);
  sockaddr_in address = ipv4("10.0.0.1", 0);
  ibv_qp_init_attr attributes = qp_attributes();
  expect_errno(rdma_resolve_addr(id, nullptr, generic(address), 1), EOPNOTSUPP);
  expect_errno(rdma_listen(id, 1), EOPNOTSUPP);
  expect_errno(rdma_connect(id, nullptr), EOPNOTSUPP);
  expect_errno(rdma_accept(id, nullptr), EOPNOTSUPP);
  expect_errno(rdma_create_qp(id, nullptr, &attributes), EOPNOTSUPP);
  rdma_destroy_id(id);
}

TEST_F(InterfaceTest, InfinibandAddressesAreOfNoDevice) {
  rdma_cm_id* id = make_id(RDMA_PS_IB);
  sockaddr_in address{};
  address.sin_family = 27;  // AF_IB
  expect_errno(rdma_bind_addr(id, generic(address)), ENODEV);
  expect_errno(rdma_resolve_addr(id, nullptr, generic(address), 1), ENODEV);
  rdma_destroy_id(id);
}

TEST_F(InterfaceTest, NullArgumentsAreRefused) {
  rdma_cm_id* id = make_id();
  rdma_cm_event* event = nullptr;
  expect_errno(rdma_get_cm_event(channel_, nullptr), EINVAL);
  expect_errno(rdma_get_cm_event(nullptr, &event), EINVAL);
  expect_errno(rdma_ack_cm_event(nullptr), EINVAL);
  expect_errno(rdma_bind_addr(id, nullptr), EINVAL);
  expect_errno(rdma_resolve_addr(id, nullptr, nullptr, 1), EINVAL);
  expect_errno(rdma_create_qp(id, nullptr, nullptr), EINVAL);
  rdma_destroy_id(id);
}

TEST_F(InterfaceTest, UnknownAddressFamilyIsRefused) {
  rdma_cm_id* id = make_id();
  sockaddr address{};
  address.sa_family = AF_UNIX;
  expect_errno(rdma_bind_addr(id, &address), EINVAL);
  rdma_destroy_id(id);
}

TEST_F(InterfaceTest, ErrorsOfTheNodeBecomeErrno) {
  rdma_cm_id* id = make_id();
  sockaddr_in address = ipv4("10.0.0.1", 80);
  for (const int error : {EADDRINUSE, EADDRNOTAVAIL, EACCES, ENODEV}) {
    node().answer = [&, error](FakeLink&, const ipc::CmCommand& command) {
      ipc::CmReply reply = node().success(command);
      reply.error = error;
      return reply;
    };
    expect_errno(rdma_bind_addr(id, generic(address)), error);
    expect_errno(rdma_listen(id, 1), error);
  }
  node().answer = nullptr;
  rdma_destroy_id(id);
}

TEST_F(InterfaceTest, BindFillsAddressAndDevice) {
  rdma_cm_id* id = make_id();
  node().answer = [&](FakeLink&, const ipc::CmCommand& command) {
    ipc::CmReply reply = node().success(command);
    reply.local = wire_address("10.0.0.1", 33000);
    reply.ifindex = kIfindex;
    return reply;
  };
  sockaddr_in address = ipv4("10.0.0.1", 0);
  ASSERT_EQ(rdma_bind_addr(id, generic(address)), 0);
  EXPECT_EQ(rdma_get_src_port(id), htons(33000));
  EXPECT_EQ(id->route.addr.src_sin.sin_addr.s_addr, address.sin_addr.s_addr);
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_EQ(id->port_num, 1);
  node().answer = nullptr;
  rdma_destroy_id(id);
}

TEST_F(InterfaceTest, OptionsCheckLevelNameAndSize) {
  rdma_cm_id* id = make_id();
  std::uint8_t byte = 8;
  int number = 1;
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
  EXPECT_EQ(node().last(CmCall::kSetOption).option_value, 8U);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &number, sizeof(number)), 0);
  EXPECT_EQ(node().last(CmCall::kSetOption).option, ipc::CmOption::kReuseAddr);
  EXPECT_EQ(node().last(CmCall::kSetOption).option_value, 1U);
  expect_errno(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &number, sizeof(number)), EINVAL);
  expect_errno(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &byte, 1), EINVAL);
  expect_errno(rdma_set_option(id, RDMA_OPTION_ID, 99, &byte, 1), ENOSYS);
  expect_errno(rdma_set_option(id, 7, 0, &byte, 1), ENOSYS);
  expect_errno(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &byte, 1), EOPNOTSUPP);
  rdma_destroy_id(id);
  id = make_id(RDMA_PS_UDP);
  expect_errno(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1), EINVAL);
  rdma_destroy_id(id);
}

TEST_F(InterfaceTest, NotifyKnowsOnlyCommunicationEstablished) {
  rdma_cm_id* id = make_id();
  EXPECT_EQ(rdma_notify(id, IBV_EVENT_COMM_EST), 0);
  EXPECT_EQ(node().count(CmCall::kNotify), 1U);
  expect_errno(rdma_notify(id, IBV_EVENT_PATH_MIG), EINVAL);
  rdma_destroy_id(id);
}

TEST_F(InterfaceTest, DevicesAreThoseOfTheNodeThatTheVerbsLibraryKnows) {
  host::Device without_verbs;
  without_verbs.ifindex = 8;
  without_verbs.interface_name = "absent";
  node().devices.push_back(without_verbs);
  int count = 0;
  ibv_context** list = rdma_get_devices(&count);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(list[1], nullptr);
  rdma_free_devices(list);
}

TEST_F(InterfaceTest, EventNames) {
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
}

TEST(AddressInfoTest, NeedsSomethingToGoBy) {
  rdma_addrinfo* info = nullptr;
  EXPECT_EQ(rdma_getaddrinfo(nullptr, nullptr, nullptr, &info), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(AddressInfoTest, ActiveResultHasADestinationAndPassiveASource) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = RAI_NUMERICHOST;
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &info), 0);
  EXPECT_EQ(info->ai_family, AF_INET);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_RC);
  EXPECT_EQ(info->ai_port_space, RDMA_PS_TCP);
  ASSERT_EQ(info->ai_dst_len, sizeof(sockaddr_in));
  EXPECT_EQ(reinterpret_cast<sockaddr_in*>(info->ai_dst_addr)->sin_port, htons(7471));
  EXPECT_EQ(info->ai_src_len, 0U);
  EXPECT_EQ(info->ai_next, nullptr);
  rdma_freeaddrinfo(info);

  hints.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST;
  hints.ai_port_space = RDMA_PS_UDP;
  ASSERT_EQ(rdma_getaddrinfo("::1", "7471", &hints, &info), 0);
  EXPECT_EQ(info->ai_family, AF_INET6);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_UD);
  EXPECT_EQ(info->ai_port_space, RDMA_PS_UDP);
  EXPECT_EQ(info->ai_dst_len, 0U);
  EXPECT_EQ(info->ai_src_len, sizeof(sockaddr_in6));
  rdma_freeaddrinfo(info);
}

TEST(AddressInfoTest, HintsSourceIsKeptForAnActiveResult) {
  sockaddr_in source = ipv4("127.0.0.2", 0);
  rdma_addrinfo hints{};
  hints.ai_src_addr = generic(source);
  hints.ai_src_len = sizeof(source);
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", nullptr, &hints, &info), 0);
  ASSERT_EQ(info->ai_src_len, sizeof(source));
  EXPECT_NE(info->ai_src_addr, hints.ai_src_addr);
  rdma_freeaddrinfo(info);
}

TEST(AddressInfoTest, UnknownNamesGiveTheResolversCode) {
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_NUMERICHOST;
  rdma_addrinfo* info = nullptr;
  EXPECT_LT(rdma_getaddrinfo("not an address", nullptr, &hints, &info), 0);
}

TEST(AddressInfoTest, ListsMadeByProgramsAreFreedMemberByMember) {
  auto* info = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  info->ai_src_addr = static_cast<sockaddr*>(std::calloc(1, sizeof(sockaddr_in)));
  info->ai_next = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  info->ai_next->ai_connect = std::malloc(4);
  rdma_freeaddrinfo(info);
}

constexpr int kEventAddrinfoResolved = 16;
constexpr int kEventAddrinfoError = 17;
constexpr int kEventUser = 18;

int type_of(const rdma_cm_event& event) { return static_cast<int>(rdma::type_of(event)); }

TEST_F(InterfaceTest, AnEventOfTheProgramsOwnComesBehindThoseThatWait) {
  rdma_cm_id* id = make_id();
  expect_errno(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
  sockaddr_in to = ipv4("10.0.0.2", 7174);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
  link().push(make_event(ipc::CmEventType::kAddrResolved, node().last(ipc::CmCall::kResolveAddr).id));
  ASSERT_EQ(rdma_write_cm_event(id, kEventUser, -7, 0x55667788AABBCCDD), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  rdma_ack_cm_event(event);
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(type_of(*event), kEventUser);
  EXPECT_STREQ(rdma::event_name(rdma::type_of(*event)), "RDMA_CM_EVENT_USER");
  EXPECT_EQ(event->id, id);
  EXPECT_EQ(event->status, -7);
  std::uint64_t argument = 0;
  std::memcpy(&argument, &event->param, sizeof argument);
  EXPECT_EQ(argument, 0x55667788AABBCCDDu);
  rdma_ack_cm_event(event);
  rdma_destroy_id(id);
}

TEST_F(InterfaceTest, AnUnreadEventOfTheProgramsOwnGoesWithItsId) {
  rdma_cm_id* id = make_id();
  rdma_cm_id* other = make_id();
  ASSERT_EQ(rdma_write_cm_event(id, kEventUser, 1, 1), 0);
  ASSERT_EQ(rdma_write_cm_event(other, kEventUser, 2, 2), 0);
  rdma_destroy_id(id);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->id, other);
  rdma_ack_cm_event(event);
  rdma_destroy_id(other);
}

TEST_F(InterfaceTest, ResolvesAddressInformationByAnEvent) {
  rdma_cm_id* id = make_id();
  rdma_addrinfo* info = nullptr;
  expect_errno(rdma_query_addrinfo(id, &info), ENODATA);
  expect_errno(rdma_resolve_addrinfo(id, nullptr, nullptr, nullptr), EINVAL);
  rdma_addrinfo hints{};
  hints.ai_flags = 16;  // RAI_SA
  expect_errno(rdma_resolve_addrinfo(id, "127.0.0.1", nullptr, &hints), EOPNOTSUPP);
  hints.ai_flags = RAI_NUMERICHOST | 32;  // RAI_DNS
  ASSERT_EQ(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &hints), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(type_of(*event), kEventAddrinfoResolved);
  EXPECT_EQ(event->status, 0);
  rdma_ack_cm_event(event);
  for (int time = 0; time < 2; ++time) {
    ASSERT_EQ(rdma_query_addrinfo(id, &info), 0);
    EXPECT_EQ(info->ai_family, AF_INET);
    EXPECT_EQ(info->ai_port_space, RDMA_PS_TCP);
    EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in*>(info->ai_dst_addr)->sin_port), 7471);
    rdma_freeaddrinfo(info);
  }
  ASSERT_EQ(rdma_resolve_addrinfo(id, "not an address", "7471", &hints), 0);
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(type_of(*event), kEventAddrinfoError);
  EXPECT_NE(event->status, 0);
  rdma_ack_cm_event(event);
  rdma_destroy_id(id);
}

}  // namespace
}  // namespace ucm::test
