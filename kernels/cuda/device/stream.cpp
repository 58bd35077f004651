#include "kernels/cuda/device/stream.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "kernels/cuda/device/driver.h"

namespace terrace::kernels::cuda {
namespace {

Status copy(const Stream& stream, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
            std::string_view what) {
  TERRACE_RETURN_IF_ERROR(make_current(stream.card()));
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, stream.native());
  if (error == cudaSuccess) return {};
  return driver_status(stream.card(), error, fmt::format("{} {} bytes", what, bytes));
}

}  // namespace

void Event::Destroy::operator()(CUevent_st* event) const { cudaEventDestroy(event); }
void Stream::Destroy::operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
void Graph::Destroy::operator()(CUgraphExec_st* graph) const { cudaGraphExecDestroy(graph); }

Result<float> Event::milliseconds_since(const Event& earlier) const {
  float milliseconds = 0;
  TERRACE_RETURN_IF_ERROR(driver_status(*card_, cudaEventElapsedTime(&milliseconds, earlier.native(), native()),
                                        "the time between two events"));
  return milliseconds;
}

Status Event::synchronize() const {
  return driver_status(*card_, cudaEventSynchronize(native()), "waiting for an event");
}

Status Stream::copy_to_card(void* card, const void* host, std::size_t bytes) const {
  return copy(*this, card, host, bytes, cudaMemcpyHostToDevice, "copying to the card");
}
Status Stream::copy_to_host(void* host, const void* card, std::size_t bytes) const {
  return copy(*this, host, card, bytes, cudaMemcpyDeviceToHost, "copying to the host");
}
Status Stream::copy_on_card(void* to, const void* from, std::size_t bytes) const {
  return copy(*this, to, from, bytes, cudaMemcpyDeviceToDevice, "copying on the card");
}

Status Stream::fill(void* card, std::uint8_t byte, std::size_t bytes) const {
  TERRACE_RETURN_IF_ERROR(make_current(*card_));
  return driver_status(*card_, cudaMemsetAsync(card, byte, bytes, native()), "filling memory");
}

Status Stream::synchronize() const {
  TERRACE_RETURN_IF_ERROR(make_current(*card_));
  return driver_status(*card_, cudaStreamSynchronize(native()), "waiting for a stream");
}

Result<bool> Stream::is_done() const {
  const cudaError_t error = cudaStreamQuery(native());
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  TERRACE_RETURN_IF_ERROR(driver_status(*card_, error, "asking a stream"));
  return true;
}

Status Stream::record(const Event& event) const {
  return driver_status(*card_, cudaEventRecord(event.native(), native()), "recording an event");
}

Status Stream::wait(const Event& event) const {
  return driver_status(*card_, cudaStreamWaitEvent(native(), event.native(), 0), "waiting for an event on a stream");
}

Result<Graph> Graph::capture(const Stream& stream, FunctionRef<Status()> queue) {
  TERRACE_RETURN_IF_ERROR(make_current(stream.card()));
  TERRACE_RETURN_IF_ERROR(driver_status(
      stream.card(), cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeThreadLocal), "beginning a capture"));
  const Status queued = queue();
  cudaGraph_t graph = nullptr;
  // Also where queue() failed: the driver then refuses to end the capture, and driver_status() takes that error away.
  const Status ended = driver_status(stream.card(), cudaStreamEndCapture(stream.native(), &graph), "ending a capture");
  const std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> owner(graph, &cudaGraphDestroy);
  TERRACE_RETURN_IF_ERROR(queued);
  TERRACE_RETURN_IF_ERROR(ended);
  cudaGraphExec_t executable = nullptr;
  TERRACE_RETURN_IF_ERROR(
      driver_status(stream.card(), cudaGraphInstantiate(&executable, graph, 0), "making a graph of a capture"));
  Graph made(executable);
  // Its memory on the card is taken now: a launch that runs out of it would be a step that fails.
  TERRACE_RETURN_IF_ERROR(
      driver_status(stream.card(), cudaGraphUpload(executable, stream.native()), "taking a graph to the card"));
  return made;
}

Status Graph::launch(const Stream& stream) const {
  TERRACE_RETURN_IF_ERROR(make_current(stream.card()));
  return driver_status(stream.card(), cudaGraphLaunch(handle_.get(), stream.native()), "launching a graph");
}

}  // namespace terrace::kernels::cuda
