// terrace secret
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/console.h"
#include "common/security/secret.h"
#include "coordinator/app/command.h"

namespace terrace::app {
namespace {

struct SecretOptions {
  std::string action;
};

OptionTable make_table(SecretOptions* o) {
  OptionTable table("terrace secret", "Makes the secret that a coordinator and its nodes share.");
  table.add_positional("ACTION", &o->action, "new: print a new one, for (umask 077; terrace secret new > FILE)")
      .required();
  return table;
}

// Such a file is refused by both programs; said while the one who made it looks.
void warn_of_open_file() {
  struct stat out {};
  if (::fstat(STDOUT_FILENO, &out) != 0 || !S_ISREG(out.st_mode) || (out.st_mode & 077) == 0) return;
  print_err("terrace: others may read the file that this was written to; chmod 600 it, or nothing will take it\n");
}

}  // namespace

std::vector<std::string> secret_option_names() {
  SecretOptions o;
  return make_table(&o).option_names();
}

Status run_secret(const CommandContext& context) {
  SecretOptions o;
  OptionTable table = make_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context));
  if (done) return {};
  if (o.action != "new")
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("there is no \"secret {}\"; terrace secret new prints a new secret", o.action));
  TERRACE_ASSIGN_OR_RETURN(const security::Secret secret, security::Secret::make());
  print_out("{}\n", secret.line());
  warn_of_open_file();
  return {};
}

}  // namespace terrace::app
