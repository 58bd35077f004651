// Tells the service manager that started this process how it is: systemd's Type=notify, sd_notify(3). Without one (no
// NOTIFY_SOCKET in the environment) nothing is sent and nothing fails.
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "common/base/environment.h"
#include "common/base/log.h"
#include "common/base/result.h"

namespace terrace {

class ServiceManager {
 public:
  explicit ServiceManager(const Environment& environment);

  // The service does its work from now on; what waits for it may start.
  Status ready() const { return send("READY=1"); }
  // It is on its way out.
  Status stopping() const { return send("STOPPING=1"); }

 private:
  // kIo: the socket took nothing; the text names it. The service can go on, its manager will not know.
  Status send(std::string_view message) const;

  std::string socket_;  // path, or '@' and a name (Linux's abstract sockets); empty: no manager
};

// Logs what ready() or stopping() failed with: a manager that cannot be told is no reason not to serve.
inline void warn_if_failed(const Status& told, const Logger& log) {
  if (!told.ok()) log.warn("{}", told.error().text());
}

}  // namespace terrace
