// A system that gives no further thread, as at RLIMIT_NPROC, TasksMax or pids.max.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace terrace::test {

// While it lives no thread of this process can be started with std::thread: each would need a stack that no address
// space holds, so that pthread_create() says EAGAIN, as it does at a limit. (A real limit would bind other processes of
// the user's too, and binds no root.)
class NoThreads {
 public:
  NoThreads() { set_stack(std::size_t{1} << 62); }
  ~NoThreads() { ::pthread_setattr_default_np(&before_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  void set_stack(std::size_t bytes) {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_getattr_default_np(&huge);
    ::pthread_attr_setstacksize(&huge, bytes);
    ::pthread_setattr_default_np(&huge);
    ::pthread_attr_destroy(&huge);
  }

  pthread_attr_t before_;
};

}  // namespace terrace::test
