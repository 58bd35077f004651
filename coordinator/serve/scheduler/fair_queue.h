// Requests that wait for a slot: clients take turns, and each one's requests stay in order.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "common/base/function_ref.h"
#include "coordinator/serve/scheduler/job.h"

namespace terrace::serve {

// Threads: the caller locks.
class FairQueue {
 public:
  std::size_t size() const { return size_; }

  void push(std::unique_ptr<Job> job);
  // The next job whose turn it is, of those that `can_start` (a job may wait for one slot); null: none.
  std::unique_ptr<Job> pop(FunctionRef<bool(const Job&)> can_start);
  // Takes that job out; null: it does not wait here.
  std::unique_ptr<Job> remove(RequestId id);
  std::vector<std::unique_ptr<Job>> remove_all();

 private:
  struct Client {
    std::deque<std::unique_ptr<Job>> jobs;  // not empty
  };
  using JobAt = std::deque<std::unique_ptr<Job>>::iterator;
  std::unique_ptr<Job> take(std::list<Client>::iterator client, const JobAt& job);

  std::list<Client> clients_;  // the one whose turn it is first
  std::size_t size_ = 0;
};

}  // namespace terrace::serve
