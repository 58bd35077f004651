#include "tier_node/app/privileges.h"

#include <sys/prctl.h>
#include <unistd.h>

namespace terrace::node {

void give_up_privileges() {
  (void)::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);  // every kernel since 3.5 does it
}

bool has_root_rights() { return ::geteuid() == 0; }

}  // namespace terrace::node
