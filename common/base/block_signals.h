// Threads that take no signals: those that are started while this is there.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace terrace {

// Blocks all signals but faults in this thread until it ends; a new thread inherits that and keeps it. They then go to
// the threads of the program that know what to do with them.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    // What the thread itself brings about: blocked, it would end the process past a handler that says why.
    for (const int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace terrace
