#include "common/base/version.h"

namespace terrace {

const char* version() { return TERRACE_VERSION; }

}  // namespace terrace
