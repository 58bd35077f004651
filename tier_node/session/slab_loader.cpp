#include "tier_node/session/slab_loader.h"

#include <utility>

#include "common/manifest/probe_slab.h"
#include "common/manifest/slab.h"

namespace terrace::node {

Result<std::unique_ptr<SlabLoader>> SlabLoader::make(const OwnModel* own, const Logger& log, unsigned receivers,
                                                     const Background& background) {
  std::unique_ptr<SlabLoader> loader(new SlabLoader(own, log, receivers));
  TERRACE_RETURN_IF_ERROR(loader->receiver_.start(background));
  TERRACE_RETURN_IF_ERROR(loader->worker_.start());
  return loader;
}

SlabLoader::SlabLoader(const OwnModel* own, const Logger& log, unsigned receivers)
    : own_(own), log_(log), receiver_(receivers) {}

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
  while (index < slots.size() && slots[index].given) ++index;
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
  if (found != slab->id()) return wrong_slab_hash(slot.item, found, slab->id(), own_->path());
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
  if (found != slab->id()) return wrong_slab_hash(slot.item, found, slab->id(), "the making of a probe");
  TERRACE_RETURN_IF_ERROR(slab->write(0, buffer_));
  assignment.slab_ready(slot, arena::publish(std::move(slab)));
  return {};
}

void SlabLoader::finish_if_complete(const SessionRef& session, const AssignmentRef& assignment) {
  if (assignment->complete()) session->finish_assign(assignment);
}

}  // namespace terrace::node
