// Reads experts' slabs from the coordinator's own file into memory that the caller has set aside: by direct I/O, so
// that what stands in for a lost node does not push the trunk's and the host leg's weights out of the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

class SlabReader {
 public:
  static constexpr std::size_t kAlignment = 4096;  // of a slot, and of direct reads

  virtual ~SlabReader() = default;
  // A slot of so many bytes (a multiple of kAlignment) holds any slab of the model.
  virtual std::size_t slot_bytes() const = 0;
  // Reads a slab into `slot`, which begins at a multiple of kAlignment; the view points into it. One call at a time.
  // kIo (the system's reason), kCorrupt (the file has become shorter) name file, tensor and offset.
  virtual Result<kernels::SlabView> read(std::uint32_t layer, std::uint16_t expert, std::span<std::byte> slot) = 0;
  // From now on parts that are in the page cache are copied from there, and the drive is asked for the others alone:
  // what a suspect node owes is then no slower than memory where the file is there. Not for what measures the drive.
  virtual void use_page_cache() {}
  // Bytes of parts that were copied so.
  virtual std::uint64_t bytes_from_memory() const { return 0; }
  // "direct I/O", or why it is not that.
  virtual const std::string& describe() const = 0;
};

// SlabReader::slot_bytes() of a model, before anything is opened.
std::size_t slab_slot_bytes(const manifest::ModelExperts& experts);

// Both outlive the reader. direct: false reads through the page cache; true does so only where the file system refuses
// direct I/O, and describe() then says which file.
std::unique_ptr<SlabReader> open_slab_reader(const gguf::File& file, const manifest::ModelExperts& experts,
                                             bool direct = true);

}  // namespace terrace::legs
