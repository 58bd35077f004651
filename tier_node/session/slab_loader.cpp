#include "tier_node/session/slab_loader.h"

#include <fmt/core.h>

#include <utility>

#include "common/manifest/probe_slab.h"
#include "common/manifest/slab.h"

namespace terrace::node {
namespace {

Error wrong_hash(const ShareItem& item, const security::Sha256& found, const security::Sha256& expected,
                 const std::string& source) {
  return Error(ErrorCode::kCorrupt,
               fmt::format("the slab of layer {}, expert {} from {} has the hash {}, the manifest says {}", item.layer,
                           item.expert, source, security::to_hex(found), security::to_hex(expected)));
}

}  // namespace

SlabLoader::SlabLoader(const OwnModel* own, const Logger& log) : own_(own), log_(log) {}

void SlabLoader::start(const SessionRef& session, const AssignmentRef& assignment) {
  if (session->is_probe() || has_model(*session)) {
    worker_.post([this, session, assignment] { read_next(session, assignment, 0); });
    return;
  }
  worker_.post([assignment] { assignment->want_missing(); });
}

// One slab a job: pieces and other sessions' slabs get their turn between two.
void SlabLoader::read_next(const SessionRef& session, const AssignmentRef& assignment, std::size_t index) {
  if (assignment->finished()) return;
  auto& slots = assignment->slots();
  while (index < slots.size() && slots[index].ready) ++index;
  if (index == slots.size()) return finish_if_complete(session, assignment);

  Assignment::Slot& slot = slots[index];
  const bool probe = session->is_probe();
  const Status read = probe ? make_own(session, *assignment, slot) : read_own(session, *assignment, slot);
  if (!read.ok()) {
    if (read.error().code() == ErrorCode::kRefused) return;  // released meanwhile: nobody waits for this share
    if (probe || read.error().code() == ErrorCode::kOutOfMemory)
      return session->abandon_assign(assignment, read.error());
    log_.warn("{}: {}; asking the coordinator for this slab", session->name(), read.error().text());
    assignment->want(slot);
  }
  worker_.post([this, session, assignment, index] { read_next(session, assignment, index + 1); });
}

Status SlabLoader::read_own(const SessionRef& session, Assignment& assignment, Assignment::Slot& slot) {
  const Model& model = session->model();
  const arena::SlabSizes& sizes = model.layer(slot.item.layer).sizes;
  TERRACE_ASSIGN_OR_RETURN(auto slab, session->allocate_slab(model.slab_id(slot.item), sizes, slot.on_card));
  buffer_.resize(sizes.file_bytes());
  TERRACE_RETURN_IF_ERROR(own_->read_slab(slot.item.layer, slot.item.expert, buffer_));
  const auto found = manifest::slab_id_of(model.shape(slot.item.layer), buffer_);
  if (found != slab->id()) return wrong_hash(slot.item, found, slab->id(), own_->path());
  TERRACE_RETURN_IF_ERROR(slab->write(0, buffer_));
  assignment.slab_ready(slot, arena::publish(std::move(slab)));
  return {};
}

// The hash is checked as of any other slab: equal ids are shared between sessions, and what is made here must never be
// taken for the bytes of a model.
Status SlabLoader::make_own(const SessionRef& session, Assignment& assignment, Assignment::Slot& slot) {
  const Model& model = session->model();
  const arena::SlabSizes& sizes = model.layer(slot.item.layer).sizes;
  TERRACE_ASSIGN_OR_RETURN(auto slab, session->allocate_slab(model.slab_id(slot.item), sizes, slot.on_card));
  buffer_.resize(sizes.file_bytes());
  manifest::make_probe_slab(slot.item.layer, slot.item.expert, buffer_);
  const auto found = manifest::slab_id_of(model.shape(slot.item.layer), buffer_);
  if (found != slab->id()) return wrong_hash(slot.item, found, slab->id(), "the making of a probe");
  TERRACE_RETURN_IF_ERROR(slab->write(0, buffer_));
  assignment.slab_ready(slot, arena::publish(std::move(slab)));
  return {};
}

void SlabLoader::receive(const SessionRef& session, const wire::SlabPieceView& piece, std::function<void()> done) {
  worker_.post([this, session, piece, done = std::move(done)] {
    if (const AssignmentRef assignment = session->pending_assign(); assignment && !assignment->finished()) {
      const Status accepted = accept(*session, *assignment, piece);
      if (accepted.ok()) {
        finish_if_complete(session, assignment);
      } else if (accepted.error().code() != ErrorCode::kRefused) {  // released while the piece was on its way
        session->end(accepted.error());
      }
    }
    done();
  });
}

Status SlabLoader::check_piece(const Session& session, const Assignment::Slot* slot,
                               const wire::SlabPiece& piece) const {
  const std::string name = fmt::format("slab piece of layer {}, expert {}", piece.layer, piece.expert);
  if (slot == nullptr || !slot->wanted)
    return Error(ErrorCode::kCorrupt, fmt::format("{}: this slab was not asked for, or is complete already", name));
  const std::uint64_t slab_bytes = session.model().layer(piece.layer).sizes.file_bytes();
  if (piece.slab_bytes != slab_bytes)
    return Error(ErrorCode::kCorrupt,
                 fmt::format("{}: says the slab has {} bytes, it has {}", name, piece.slab_bytes, slab_bytes));
  if (piece.offset != slot->received)
    return Error(ErrorCode::kCorrupt, fmt::format("{}: begins at byte {}, {} is next; pieces come in order, without "
                                                  "gap or overlap",
                                                  name, piece.offset, slot->received));
  return {};
}

Status SlabLoader::accept(const Session& session, Assignment& assignment, const wire::SlabPieceView& view) {
  const wire::SlabPiece& piece = view.piece;
  Assignment::Slot* const slot = assignment.find({piece.layer, piece.expert});
  TERRACE_RETURN_IF_ERROR(check_piece(session, slot, piece));
  const Model& model = session.model();
  if (!slot->filling) {
    TERRACE_ASSIGN_OR_RETURN(
        slot->filling, session.allocate_slab(model.slab_id(slot->item), model.layer(piece.layer).sizes, slot->on_card));
    slot->hasher.emplace(model.shape(piece.layer));
  }
  TERRACE_RETURN_IF_ERROR(slot->filling->write(piece.offset, view.data));
  slot->hasher->update(view.data);
  slot->received += view.data.size();
  if (slot->received < piece.slab_bytes) return {};

  const auto found = slot->hasher->finish();
  if (found != slot->filling->id()) return wrong_hash(slot->item, found, slot->filling->id(), "the coordinator");
  assignment.slab_ready(*slot, arena::publish(std::move(slot->filling)));
  return {};
}

void SlabLoader::finish_if_complete(const SessionRef& session, const AssignmentRef& assignment) {
  if (assignment->complete()) session->finish_assign(assignment);
}

}  // namespace terrace::node
