// terrace-docgen DIR: writes man pages and shell completions below DIR. A tool of the build.
#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/console.h"
#include "tools/docgen/completions.h"
#include "tools/docgen/man_page.h"

namespace terrace::docgen {
namespace {

Status write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
  out.close();
  if (!out) return Error(ErrorCode::kIo, path.string() + ": cannot be written");
  return {};
}

Status run(const std::filesystem::path& dir) {
  TERRACE_ASSIGN_OR_RETURN(const Programs programs, describe_programs());
  const Scripts bash = bash_completions(programs), zsh = zsh_completions(programs), fish = fish_completions(programs);
  TERRACE_RETURN_IF_ERROR(write_file(dir / "terrace.1", terrace_page(programs)));
  TERRACE_RETURN_IF_ERROR(write_file(dir / "terrace-node.1", node_page(programs)));
  TERRACE_RETURN_IF_ERROR(write_file(dir / "bash" / "terrace", bash.terrace));
  TERRACE_RETURN_IF_ERROR(write_file(dir / "bash" / "terrace-node", bash.node));
  TERRACE_RETURN_IF_ERROR(write_file(dir / "zsh" / "_terrace", zsh.terrace));
  TERRACE_RETURN_IF_ERROR(write_file(dir / "zsh" / "_terrace-node", zsh.node));
  TERRACE_RETURN_IF_ERROR(write_file(dir / "fish" / "terrace.fish", fish.terrace));
  return write_file(dir / "fish" / "terrace-node.fish", fish.node);
}

}  // namespace
}  // namespace terrace::docgen

int main(int argc, char** argv) {
  terrace::prepare_standard_streams();
  if (argc != 2) {
    terrace::print_err("usage: terrace-docgen DIR\n");
    return 2;
  }
  const terrace::Status written = terrace::docgen::run(argv[1]);
  if (written.ok()) return 0;
  terrace::print_err("terrace-docgen: {}\n", written.error().text());
  return 1;
}
