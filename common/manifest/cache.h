// Manifests kept between runs: hashing a large model takes minutes, reading its manifest back a moment.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/gguf/file.h"
#include "common/manifest/manifest.h"

namespace terrace::manifest {

// Where caches of this user lie: <xdg_cache_home>/terrace, else <home>/.cache/terrace; the arguments are the values of
// XDG_CACHE_HOME and HOME, null or empty where they are not set. Empty where neither is an absolute path.
std::filesystem::path default_cache_dir(const char* xdg_cache_home, const char* home);

// Bytes that change whenever those of any shard do, as far as the file system can tell without reading them: inode,
// size, mtime and ctime of each. Without its device, whose number is another one after the next boot. kIo names the
// shard.
Result<std::string> identity(const gguf::File& file);

struct LoadedManifest {
  Manifest manifest;
  bool from_cache = false;
  std::string cache_note;  // for people: why the cache was not used, or not written; empty when all is well
};

// The manifest of `file`, from which `experts` is: from the cache file in cache_dir if that was made from these very
// files (device, inode, size, mtime and ctime of every shard), else computed and then cached. An empty cache_dir means
// no cache. A cache file that is stale, damaged or cannot be written is no error, only a note. Errors as compute().
Result<LoadedManifest> load(const gguf::File& file, const ModelExperts& experts, const std::filesystem::path& cache_dir,
                            Parallel& parallel, Progress progress);

}  // namespace terrace::manifest
