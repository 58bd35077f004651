#include "common/threads/options.h"

namespace terrace {

void add_cpu_options(OptionTable& table, std::optional<std::uint32_t>* threads, std::optional<std::string>* cpu_list) {
  table.add("threads", threads, "threads that compute, here")
      .short_name('t')
      .range(1, 1024)
      .default_text("one for each physical core this process may use, within its CPU quota");
  table.add("cpu-list", cpu_list, "run on these CPUs alone: 0-3,8; they must be allowed to this process")
      .value_name("LIST")
      .default_text("all that are allowed");
}

}  // namespace terrace
