// What a coordinator asks a node for first, as protobuf: lawful, for tests to bend.
#pragma once

#include "common/wire/versions.h"
#include "terrace/v1/node.pb.h"
#include "tests/unit/tier_node/support/tiny_model.h"

namespace terrace::node::test {

inline v1::OpenSessionRequest open_request(const TinyModel& model) {
  v1::OpenSessionRequest request;
  request.mutable_protocol()->set_min(wire::kProtocolMin);
  request.mutable_protocol()->set_max(wire::kProtocolMax);
  request.set_numerics_version(wire::kNumericsVersion);
  request.set_manifest(model.manifest_bytes);
  request.set_max_rows(64);
  request.set_max_pairs(512);
  request.set_max_ranges(8);
  request.set_coordinator("box7");
  request.set_largest_frame(16 << 20);
  return request;
}

}  // namespace terrace::node::test
