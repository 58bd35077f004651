// The classes of bugs by which others' worker links were broken (README.md), each by its tests: those that stand
// elsewhere are looked up by name, so that none is renamed or lost unseen; those that are missing elsewhere are here.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cctype>
#include <regex>
#include <set>

#include "common/transport/loopback/loopback.h"
#include "terrace/v1/node.grpc.pb.h"
#include "tests/hostile/support/message_values.h"
#include "tests/unit/common/temp_dir.h"
#include "tests/unit/tier_node/support/node_parts.h"
#include "tests/unit/tier_node/support/open_request.h"
#include "tier_node/service/control_server.h"

namespace terrace::node {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageLite;
using terrace::test::dotted;
using terrace::test::FieldPath;
using terrace::test::fields_of;
using terrace::test::read_file;
using terrace::test::set_value;
using test::must;
using test::NodeParts;
using test::TinyModel;
namespace v1 = ::terrace::v1;

struct Class {
  const char* id;
  const char* what;
  std::vector<std::string> tests;  // "Suite.Test"; of Python "Class.test_name"
};

// Sources of each class: README.md.
const std::vector<Class>& classes() {
  static const std::vector<Class> all = {
      {"P01",
       "unauthenticated worker port by default",
       {"SecurityBeyondLoopback.WithoutCredentials_NeitherProgramGoesThere",
        "TerraceNode.BeyondLoopback_RefusedBeforeAnythingListens",
        "GrpcNodeControl.BeyondLoopback_RefusedBeforeAnythingIsSent",
        "ControlSecurity.OtherSecretNoneOrPlainText_AreShutOutInTheHandshake"}},
      {"P02",
       "raw pointers as handles",
       {"PeerClass.P02_IdsAreRandomNotAddressesNorCounted",
        "ControlSecuritySessions.OfSomebodyElse_IsNotThereForAnyCall",
        "DataServerTest.WrongKeyOrUnknownSession_TheSameRefusal"}},
      {"P03",
       "check skipped on a null field",
       {"PeerClassOfCalls.P03_EveryFieldOfEveryCallAbsentEmptyOrHuge_TheNodeAnswersOn",
        "HostileReplies.EveryFieldOfEveryAnswerAbsentEmptyOrHuge_TheNodeIsNamedOrTheSessionGoesOn",
        "ControlServerTest.EmptyRequests_AreErrorsNotCrashes",
        "HostileClient.EverySectionOfEveryFrame_AbsentEmptyShortDoubledHuge_NamedErrorAndOthersAreServed",
        "Batch.SectionAbsent_IsRefusedByName"}},
      {"P04",
       "type id used as index or divisor",
       {"PeerClassOfCalls.P04_EveryTypeIdWithOddSizes_IsAnErrorOrAnEstimate",
        "GgufBugClass.C09_UnknownTensorType_IsNamedAndSaysWhoseItIs",
        "GgufBugClass.C04_BytesThatOverflow_AreRefusedForEveryType",
        "SessionTest.EveryByteOfTheManifestFlipped_NoneOpens"}},
      {"P05",
       "function pointer, op code or path from the wire",
       {"PeerClass.P05_NoFieldOfACallIsCodeOrAPath", "HostileClient.EveryHeaderFieldOutOfRange_NamedError",
        "Security.ModelOutsideTheModelDirectory_IsRefusedThroughLinksToo"}},
      {"P06",
       "size arithmetic",
       {"Batch.CountsThatMultiplyBeyondMemory_AreRefused",
        "ForeignBytes.ManySpoiltWordsUnderARightChecksum_AreRefusedOrInRange",
        "HostileClient.EveryFieldOfABatchOutOfRange_NamedError", "UnpackAddRow.SumsWrapInsteadOfOverflowing"}},
      {"P07",
       "use after free of cached state",
       {"HostileClient.ForgetWhileItsBatchIsComputed_AnsweredFromTheOldShareAndLaterOnesAreStale",
        "SessionTest.ForgottenWhileABatchRuns_SlabsStayUntilItEnds",
        "DataServerTest.SessionEnds_EveryLaneHearsWhyAndMemoryIsFreeOnceTheBatchInHandIsDone"}},
      {"P08",
       "64-bit length allocated before check",
       {"PeerClassOfCalls.P03_EveryFieldOfEveryCallAbsentEmptyOrHuge_TheNodeAnswersOn",
        "WireAllocations.HugeNumberInEveryField_OnlyTheErrorIsAllocated",
        "WireAllocations.HeaderOfAFrameBeyondTheLimit_NothingIsSetAsideByTheConnection",
        "DataServerTest.LargeFrameAnnouncedBeforeHello_ClosedAtItsHeader",
        "SessionTest.ManifestsOfAllSessionsTogether_AreBounded",
        "SessionTest.MoreThanTheBudget_RefusedWithNumbersAndNothingTaken"}},
      {"P09",
       "one slow or mute client blocks the accept loop",
       {"ControlSecurity.MuteClientsAndGarbageInTheHandshake_OthersAreAnswered",
        "SlowControlClient.ByteByByteOrMute_CallsAreAnsweredAndTheConnectionsEnd",
        "SlowControlClient.MoreConnectionsThanAllowed_TheSlowMakeRoom_OthersGoOn",
        "SlowClient.ManyConnectionsThatDripOrAreMute_OthersGetInAndAreServed"}},
      {"P10",
       "objects that describe themselves",
       {"PeerClass.P05_NoFieldOfACallIsCodeOrAPath", "HostileClient.EverySectionInEveryFrameThatHasNone_NamedError",
        "DecodeFrame.Sections_AreRefusedByName"}},
      {"P11",
       "binds all interfaces though told one",
       {"SecurityBeyondLoopback.ListeningSockets_AreTheTwoThatWereTold",
        "SecurityBeyondLoopback.SecondNodeOnThePort_IsRefused"}},
      {"P12",
       "API key guards some routes only",
       {"HttpServer.WithKeys_EachRouteButTheOpenOnesNeedsOne",
        "Keys.test_each_route_but_health_and_the_page_needs_one"}},
      {"P13", "request numbers unchecked", {"FieldTable.NumbersBeyondTheirRange_AreNamed"}},
      {"P14",
       "template from the model file",
       {"TemplateLimits.Steps", "TemplateLimits.MemoryOfValues", "TemplateLimits.DepthOfCalls",
        "TemplateLimits.WidthOutputAndRange"}},
      {"P15",
       "model file lies",
       {"HostileFile.EveryCommand_OneLineOrItWorks", "HostileFilesOfANode.OneOfEachKind_IsRefusedInOneLine",
        "GgufBugClass.C26_FileChangedUnderARunningNode_OtherBytesAreNeverServed"}},
      {"P16",
       "first contact trusted",
       {"Security.NodeWithASecret_TakesNobodyElse", "Security.PlainNode_IsNotSpokenToWithASecret",
        "NodeChannel.NodeOfAnotherSecret_ExpiredOrForCoordinators_IsAskedAbout"}},
      {"P17",
       "nodes that return wrong numbers",
       {"PlacementGateShownToFail.NodeWithOtherKernels_IsRefusedByTheCanary",
        "PlacementGateShownToFail.PlantedOneBitKernelError_TurnsItRed",
        "PlacementGateShownToFail.FurtherShareThatTheNodeComputesWrong_IsRefusedByItsCanary",
        "WrongNode.WrongFromItsFirstBatch_RefusedByTheCanary",
        "WrongNode.EveryPairAudited_NoTokenIsWrongAndTheNodeIsOut",
        "WrongNode.WrongAfter1000Batches_FoundWithinTheCoverageAndTheRunEqualsTheFaultFree",
        "AuditorTest.OneWrongBit_IsFoundNamedAndPutOut_UncertainSinceTheLastCleanAudit",
        "RollBack.AnySchedule_EveryReplyIsThatOfARunWithoutTheNode"}},
  };
  return all;
}

// Every test of the repository by name.
std::set<std::string> all_tests() {
  // Tests that are scripts are named where they are added.
  const std::regex added(R"(NAME ([A-Z]\w*\.\w+))");
  const std::regex cpp(R"(TEST(?:_F|_P)?\((\w+),\s*(\w+)\))"), python_class(R"(class (\w+)\()"),
      python_test(R"(    def (test_\w+)\()");
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(terrace::test::source_dir() / "tests")) {
    const std::string kind = entry.path().extension().string();
    const bool is_list = entry.path().filename() == "CMakeLists.txt";
    if (kind != ".cpp" && kind != ".py" && !is_list) continue;
    const std::string text = read_file(entry.path());
    if (is_list) {
      for (std::sregex_iterator each(text.begin(), text.end(), added), end; each != end; ++each)
        found.insert((*each)[1].str());
      continue;
    }
    if (kind == ".cpp") {
      for (std::sregex_iterator each(text.begin(), text.end(), cpp), end; each != end; ++each)
        found.insert((*each)[1].str() + "." + (*each)[2].str());
      continue;
    }
    std::string of_class;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (std::regex_search(line, match, python_class, std::regex_constants::match_continuous)) of_class = match[1];
      if (std::regex_search(line, match, python_test, std::regex_constants::match_continuous))
        found.insert(of_class + "." + match[1].str());
    }
  }
  return found;
}

// Searched once for all classes.
const std::set<std::string>& known_tests() {
  static const std::set<std::string> known = all_tests();
  return known;
}

std::string page(const std::filesystem::path& below_the_root) {
  return read_file(terrace::test::source_dir() / below_the_root);
}

// Whether a test has this name. Pages shorten: "Suite.Begins_…" and "Suite.*" stand for any test that begins so.
bool names_a_test(std::string name) {
  for (const std::string_view rest : {"…", "*"})
    if (name.ends_with(rest)) {
      name.resize(name.size() - rest.size());
      const auto at = known_tests().lower_bound(name);
      return at != known_tests().end() && at->starts_with(name);
    }
  return known_tests().contains(name);
}

// Whatever stands in backquotes as a name of a test does: "Suite.Test", "Suite.Begins_…", "Suite.*". What a case of it
// is called by, "All/Suite.Test/17", is left out.
std::vector<std::string> tests_named_in(const std::string& text) {
  const std::regex quoted("`(?:\\w+/)?([A-Z][A-Za-z0-9]*\\.(?:\\*|[A-Z][A-Za-z0-9_]*(?:…|\\*)?))(?:/\\w+)?`");
  std::vector<std::string> names;
  for (std::sregex_iterator each(text.begin(), text.end(), quoted), end; each != end; ++each)
    names.push_back((*each)[1].str());
  return names;
}

// A class is found by its number: `ctest -R P09`.
class PeerClasses : public ::testing::TestWithParam<Class> {};
std::ostream& operator<<(std::ostream& out, const Class& each) { return out << each.id; }

std::string name_of(const ::testing::TestParamInfo<Class>& info) {
  std::string name = std::string(info.param.id) + "_";
  for (const char* c = info.param.what; *c != '\0'; ++c)
    if (std::isalnum(static_cast<unsigned char>(*c)) != 0)
      name += *c;
    else if (!name.ends_with('_'))
      name += '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Classes, PeerClasses, ::testing::ValuesIn(classes()), name_of);

TEST_P(PeerClasses, HasItsTests) {
  const Class& each = GetParam();
  EXPECT_FALSE(each.tests.empty());
  for (const std::string& test : each.tests) EXPECT_TRUE(names_a_test(test)) << "there is no " << test;
  const std::string readme = page("tests/hostile/README.md"), security = page("docs/security.md");
  EXPECT_NE(readme.find(std::string("| ") + each.id + " |"), std::string::npos) << "not in the README";
  const std::size_t row = security.find(std::string("| ") + each.id + ": ");
  ASSERT_NE(row, std::string::npos) << "no row of docs/security.md";
  EXPECT_FALSE(tests_named_in(security.substr(row, security.find('\n', row) - row)).empty()) << "its row names no test";
}

TEST(PeerClass, P00_EveryTestThatTheDocumentsName_Exists) {
  EXPECT_GT(tests_named_in(page("docs/security.md")).size(), 60u) << "names are found where they stand";
  int n_pages = 0;
  for (const char* folder : {"docs", "docs/adr"})
    for (const auto& entry : std::filesystem::directory_iterator(terrace::test::source_dir() / folder)) {
      if (entry.path().extension() != ".md") continue;
      ++n_pages;
      for (const std::string& name : tests_named_in(read_file(entry.path())))
        EXPECT_TRUE(names_a_test(name)) << entry.path().filename() << ": there is no " << name;
    }
  EXPECT_GT(n_pages, 40);
  for (const char* none : {"PeerClass.P99_ThatThereIsNot", "PeerClass.P99_…", "NoSuchSuite.*"})
    EXPECT_FALSE(names_a_test(none)) << "the look-up finds what there is, and no more: " << none;
}

// ---- a node in this process, asked over gRPC ------------------------------------------------------------------------

std::unique_ptr<Message> new_message(const google::protobuf::Descriptor* type) {
  return std::unique_ptr<Message>(google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
}

class PeerClassOfCalls : public ::testing::Test {
 protected:
  PeerClassOfCalls()
      : control_(must(ControlServer::start("127.0.0.1:0", node_.sessions(), node_.loader(), {}))),
        channel_(grpc::CreateChannel(control_->address(), grpc::InsecureChannelCredentials())) {}
  ~PeerClassOfCalls() override {
    control_.reset();
    node_.sessions().end_all(Error(ErrorCode::kPeerGone, "the test is over"));
  }

  // Any method, by messages that need not be lawful.
  grpc::Status call(const std::string& method, const Message& request, Message& reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const std::string path = "/terrace.v1.Node/" + method;
    const grpc::internal::RpcMethod rpc(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
    return grpc::internal::BlockingUnaryCall<MessageLite, MessageLite, MessageLite, MessageLite>(
        channel_.get(), rpc, &context, request, &reply);
  }
  // A request that the node would take but for what is changed in it, so that the change is what it comes to. Assign is
  // refused behind all that its share says, since nothing is reserved.
  std::unique_ptr<Message> lawful(const google::protobuf::Descriptor& type) {
    std::unique_ptr<Message> request = new_message(&type);
    if (auto* opening = dynamic_cast<v1::OpenSessionRequest*>(request.get())) {
      *opening = test::open_request(model_);
    } else if (auto* estimate = dynamic_cast<v1::EstimateRequest*>(request.get())) {
      estimate->set_d_model(model_.manifest.d_model);
      estimate->set_n_experts(model_.manifest.n_experts);
      for (const manifest::LayerShape& layer : model_.manifest.layers) add_layer(layer, *estimate);
    } else if (const FieldDescriptor* session = type.FindFieldByName("session")) {
      request->GetReflection()->SetUInt64(request.get(), session, open());  // its own: what others left is not met
    }
    if (auto* assign = dynamic_cast<v1::AssignRequest*>(request.get())) {
      assign->set_epoch(1);
      assign->add_layers()->add_experts(0);
    }
    for (const char* size : {"max_rows", "max_pairs", "max_ranges"})
      if (const FieldDescriptor* field = type.FindFieldByName(size))
        request->GetReflection()->SetUInt32(request.get(), field, 8);
    if (const FieldDescriptor* field = type.FindFieldByName("largest_frame"))
      request->GetReflection()->SetUInt64(request.get(), field, 16 << 20);
    return request;
  }
  static void add_layer(const manifest::LayerShape& shape, v1::EstimateRequest& message) {
    v1::ExpertLayer* layer = message.add_layers();
    layer->set_n_experts(shape.n_experts);
    layer->set_gate_type(static_cast<std::uint32_t>(shape.types.gate));
    layer->set_up_type(static_cast<std::uint32_t>(shape.types.up));
    layer->set_down_type(static_cast<std::uint32_t>(shape.types.down));
    layer->set_ff(shape.ff);
  }
  std::uint64_t open() {
    v1::OpenSessionReply reply;
    const grpc::Status status = call("OpenSession", test::open_request(model_), reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.session();
  }
  void expect_lawful_is_taken() {
    v1::EstimateReply reply;
    const grpc::Status estimated = call("Estimate", *lawful(*v1::EstimateRequest::descriptor()), reply);
    EXPECT_TRUE(estimated.ok()) << estimated.error_message();
    v1::AssignProgress progress;
    const grpc::Status assigned = call("Assign", *lawful(*v1::AssignRequest::descriptor()), progress);
    EXPECT_NE(assigned.error_message().find("without a reservation"), std::string::npos) << assigned.error_message();
  }
  void expect_the_node_answers_on() {
    v1::DescribeReply reply;
    const grpc::Status status = call("Describe", v1::DescribeRequest(), reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_LE(node_.store().usage().reserved, node_.store().usage().budget);
    ASSERT_LE(node_.sessions().all().size(), SessionOptions().max_sessions);
  }

  TinyModel model_;
  NodeParts node_{model_, test::NodeSettings{}};
  std::unique_ptr<ControlServer> control_;
  std::shared_ptr<grpc::Channel> channel_;
};

// A file that nobody has a reason to open, and whether somebody did: any process, by any name for it.
class Decoy {
 public:
  Decoy() : watch_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    terrace::test::write_file(path(), "never read");
    EXPECT_GE(::inotify_add_watch(watch_, path().c_str(), IN_OPEN), 0);
  }
  ~Decoy() { ::close(watch_); }
  Decoy(const Decoy&) = delete;
  Decoy& operator=(const Decoy&) = delete;
  std::string path() const { return dir_ / "decoy"; }
  bool was_opened() const {
    char events[1024];
    return ::read(watch_, events, sizeof events) > 0;
  }

 private:
  const terrace::test::TempDir dir_;
  const int watch_;
};

TEST(PeerClass, P02_IdsAreRandomNotAddressesNorCounted) {
  TinyModel model;
  NodeParts node(model, test::NodeSettings{});
  std::set<std::uint64_t> ids, steps;
  std::uint64_t before = 0, high_bits = 0;
  for (int i = 0; i < 32; ++i) {
    const std::uint64_t id = node.open()->id();
    ids.insert(id);
    steps.insert(id - before);
    before = id;
    high_bits |= id >> 47;  // 0 in every address of a process
  }
  EXPECT_EQ(ids.size(), 32u);
  EXPECT_EQ(steps.size(), 32u);
  EXPECT_NE(high_bits, 0u);
  node.sessions().end_all(Error(ErrorCode::kPeerGone, "the test is over"));
}

TEST_F(PeerClassOfCalls, P03_EveryFieldOfEveryCallAbsentEmptyOrHuge_TheNodeAnswersOn) {
  const google::protobuf::ServiceDescriptor* service = v1::DescribeRequest::descriptor()->file()->service(0);
  const Decoy decoy;
  expect_lawful_is_taken();
  int n_calls = 0;
  for (int m = 0; m < service->method_count(); ++m) {
    const google::protobuf::MethodDescriptor* method = service->method(m);
    // Status is a stream without end and has one number; Drain ends the node and has none.
    if (method->name() == "Status" || method->name() == "Drain") continue;
    const google::protobuf::Descriptor* type = method->input_type();
    for (const FieldPath& field : fields_of(*type)) {
      bool more = true;
      for (std::size_t nth = 0; more; ++nth) {
        const std::unique_ptr<Message> request = lawful(*type), reply = new_message(method->output_type());
        more = set_value(*request, field, nth, decoy.path());
        const grpc::Status status = call(method->name(), *request, *reply);
        const std::string which = fmt::format("{}.{} {}", method->name(), dotted(field), nth);
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << which;
        EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << which;
        ++n_calls;
        while (node_.sessions().all().size() > 8)
          node_.sessions().all().front()->end(Error(ErrorCode::kPeerGone, "room for the next"));
      }
      expect_the_node_answers_on();
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(n_calls, 200);
  EXPECT_FALSE(decoy.was_opened()) << "a path from the wire was opened";
  (void)read_file(decoy.path());
  EXPECT_TRUE(decoy.was_opened()) << "opening it is seen";
}

TEST_F(PeerClassOfCalls, P04_EveryTypeIdWithOddSizes_IsAnErrorOrAnEstimate) {
  int n_estimates = 0;
  for (std::uint32_t type = 0; type <= 256; ++type)
    for (const std::uint32_t ff : {0u, 1u, 33u, 256u, 0xffffffffu})
      for (const std::uint32_t d_model : {0u, 255u, 256u, 0xffffffffu}) {
        v1::EstimateRequest request;
        request.set_d_model(d_model);
        request.set_n_experts(8);
        v1::ExpertLayer* layer = request.add_layers();
        layer->set_n_experts(8);
        layer->set_gate_type(type);
        layer->set_up_type(type);
        layer->set_down_type(type == 256 ? 0xffffffffu : type);
        layer->set_ff(ff);
        request.set_max_rows(1);
        request.set_max_pairs(8);
        request.set_max_ranges(1);
        request.set_largest_frame(16 << 20);
        v1::EstimateReply reply;
        const grpc::Status status = call("Estimate", request, reply);
        ASSERT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << type << " " << ff << " " << d_model;
        if (status.ok()) ++n_estimates;
      }
  EXPECT_GT(n_estimates, 0) << "lawful shapes are among them";
  expect_the_node_answers_on();
}

// What a call says is numbers, versions, names for people, and bytes that are a manifest or a key: nothing that the
// other end would run, look up by address, open as a file, or that says itself what it is. A new text or bytes field
// comes here once somebody has looked at what is done with it.
TEST(PeerClass, P05_NoFieldOfACallIsCodeOrAPath) {
  const std::set<std::string> texts = {"CardStatus.name",
                                       "CpuStatus.waiting",
                                       "CpuStatus.why",
                                       "DescribeReply.capabilities",
                                       "DescribeReply.isa",
                                       "DescribeReply.link",
                                       "DescribeReply.machine",
                                       "DescribeReply.version",
                                       "KernelsEntry.key",
                                       "KernelsEntry.value",
                                       "OpenSessionReply.data_cipher",
                                       "OpenSessionReply.data_key",
                                       "OpenSessionReply.token",
                                       "OpenSessionRequest.coordinator",
                                       "OpenSessionRequest.data_ciphers",
                                       "OpenSessionRequest.manifest",
                                       "OpenSessionRequest.required_capabilities",
                                       "SessionStatus.coordinator",
                                       "SessionStatus.data_cipher",
                                       "StatusReply.confinement",
                                       "StatusReply.isa",
                                       "StatusReply.link",
                                       "StatusReply.listen",
                                       "StatusReply.state",
                                       "StatusReply.version"};
  std::vector<const google::protobuf::Descriptor*> left;
  const google::protobuf::FileDescriptor* file = v1::DescribeRequest::descriptor()->file();
  EXPECT_EQ(file->dependency_count(), 0) << "google.protobuf.Any and its like come from other files";
  for (int i = 0; i < file->message_type_count(); ++i) left.push_back(file->message_type(i));
  int n_seen = 0;
  while (!left.empty()) {
    const google::protobuf::Descriptor* type = left.back();
    left.pop_back();
    for (int i = 0; i < type->nested_type_count(); ++i) left.push_back(type->nested_type(i));
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) continue;
      EXPECT_TRUE(texts.contains(type->name() + "." + field->name())) << field->full_name();
      ++n_seen;
    }
  }
  EXPECT_GT(n_seen, 15);
}

}  // namespace
}  // namespace terrace::node
