#include "common/manifest/cache.h"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "common/gguf/bytes.h"
#include "common/gguf/mapped_file.h"
#include "common/gguf/output_file.h"

namespace terrace::manifest {
namespace {

// A cache file: magic, the identity of the model's files, the manifest's bytes. Its hash covers all before it; the
// manifest carries its own.
constexpr std::string_view kCacheMagic = "TERRMCA1";

Result<std::string> identity_of(const gguf::File& file, bool with_devices) {
  std::string out;
  gguf::append(out, file.n_shards());
  for (std::uint32_t shard = 0; shard < file.n_shards(); ++shard) {
    struct stat status {};
    if (::fstat(file.fd(shard), &status) != 0)
      return Error(ErrorCode::kIo, fmt::format("{}: cannot look at it: {}", file.path(shard).string(),
                                               std::generic_category().message(errno)));
    for (const std::uint64_t part :
         {with_devices ? static_cast<std::uint64_t>(status.st_dev) : 0, static_cast<std::uint64_t>(status.st_ino),
          static_cast<std::uint64_t>(status.st_size), static_cast<std::uint64_t>(status.st_mtim.tv_sec),
          static_cast<std::uint64_t>(status.st_mtim.tv_nsec), static_cast<std::uint64_t>(status.st_ctim.tv_sec),
          static_cast<std::uint64_t>(status.st_ctim.tv_nsec)})
      gguf::append(out, part);
  }
  return out;
}

// One file for each path of a model, so that a changed model replaces its old entry.
std::filesystem::path cache_path(const gguf::File& file, const std::filesystem::path& cache_dir) {
  std::error_code ignored;
  const auto canonical = std::filesystem::weakly_canonical(file.path(), ignored);
  const std::string name = (canonical.empty() ? file.path() : canonical).string();
  const std::string hex = security::to_hex(security::sha256(gguf::as_bytes(name)));
  return cache_dir / fmt::format("{}-{}.manifest", file.path().stem().string(), hex.substr(0, 16));
}

std::string cache_bytes(const std::string& identity, const Manifest& manifest) {
  std::string out(kCacheMagic);
  out += identity;
  out += serialize(manifest);
  out += gguf::as_text(security::sha256(gguf::as_bytes(out)));
  return out;
}

Result<Manifest> read_cache(const std::filesystem::path& path, const std::string& identity,
                            const ModelExperts& experts) {
  TERRACE_ASSIGN_OR_RETURN(const auto mapped, gguf::MappedFile::open(path));
  // A copy, so that another process cannot change what was checked.
  const std::string bytes(gguf::as_text(mapped.bytes()));
  const std::string head = std::string(kCacheMagic) + identity;
  if (!bytes.starts_with(kCacheMagic) || bytes.size() < head.size() + security::kSha256Bytes)
    return Error(ErrorCode::kCorrupt, "no manifest cache of this version");
  const std::size_t hashed = bytes.size() - security::kSha256Bytes;
  const Sha256 hash = security::sha256(gguf::as_bytes(bytes).first(hashed));
  if (gguf::as_text(hash) != std::string_view(bytes).substr(hashed))
    return Error(ErrorCode::kCorrupt, "the hash does not fit the bytes: damaged");
  if (!bytes.starts_with(head)) return Error(ErrorCode::kNotFound, "the model file has changed since");
  TERRACE_ASSIGN_OR_RETURN(auto manifest, parse(gguf::as_bytes(bytes).subspan(head.size(), hashed - head.size())));
  if (!describes(manifest, experts)) return Error(ErrorCode::kCorrupt, "it describes other experts");
  return manifest;
}

Status write_cache(const std::filesystem::path& path, const std::string& bytes) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) return Error(ErrorCode::kIo, fmt::format("cannot make the folder: {}", error.message()));
  TERRACE_ASSIGN_OR_RETURN(auto out, gguf::OutputFile::create(path));
  TERRACE_RETURN_IF_ERROR(out.write(gguf::as_bytes(bytes)));
  return out.commit();
}

std::string note(const std::filesystem::path& path, const char* what, const Error& error) {
  return fmt::format("{}: cached manifest {}: {}", path.string(), what, error.text());
}

}  // namespace

Result<std::string> identity(const gguf::File& file) { return identity_of(file, false); }

std::filesystem::path default_cache_dir(const char* xdg_cache_home, const char* home) {
  // The XDG base directory specification: a relative path is to be ignored.
  const auto absolute = [](const char* value) {
    return value != nullptr && std::filesystem::path(value).is_absolute();
  };
  if (absolute(xdg_cache_home)) return std::filesystem::path(xdg_cache_home) / "terrace";
  if (absolute(home)) return std::filesystem::path(home) / ".cache" / "terrace";
  return {};
}

Result<LoadedManifest> load(const gguf::File& file, const ModelExperts& experts, const std::filesystem::path& cache_dir,
                            Parallel& parallel, Progress progress) {
  LoadedManifest loaded;
  if (cache_dir.empty()) {
    TERRACE_ASSIGN_OR_RETURN(loaded.manifest, compute(file, experts, parallel, progress));
    return loaded;
  }
  TERRACE_ASSIGN_OR_RETURN(const auto before, identity_of(file, true));
  const auto path = cache_path(file, cache_dir);
  auto cached = read_cache(path, before, experts);
  if (cached.ok()) {
    loaded.manifest = std::move(cached).value();
    loaded.from_cache = true;
    return loaded;
  }
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) loaded.cache_note = note(path, "not used", cached.error());
  TERRACE_ASSIGN_OR_RETURN(loaded.manifest, compute(file, experts, parallel, progress));
  TERRACE_ASSIGN_OR_RETURN(const auto after, identity_of(file, true));
  if (after != before)
    return Error(ErrorCode::kCorrupt, fmt::format("{}: it changed while it was read", file.path().string()));
  if (auto status = write_cache(path, cache_bytes(before, loaded.manifest)); !status.ok())
    loaded.cache_note = note(path, "not written", status.error());
  return loaded;
}

}  // namespace terrace::manifest
