#include "tier_node/app/privileges.h"

#include <sys/prctl.h>
#include <unistd.h>

namespace terrace::node {

void give_up_privileges(const Logger& log) {
  (void)::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);  // every kernel since 3.5 does it
  if (::geteuid() == 0) log.info("running as root, whose rights a node does not need; another user is safer");
}

}  // namespace terrace::node
