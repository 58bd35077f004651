#include "coordinator/serve/scheduler/fair_queue.h"

#include <algorithm>
#include <utility>

namespace terrace::serve {

void FairQueue::push(std::unique_ptr<Job> job) {
  const auto client = std::ranges::find_if(
      clients_, [&](const Client& c) { return c.jobs.front()->request.client == job->request.client; });
  Client& its = client != clients_.end() ? *client : clients_.emplace_back();
  its.jobs.push_back(std::move(job));
  ++size_;
}

std::unique_ptr<Job> FairQueue::take(std::list<Client>::iterator client, const JobAt& job) {
  std::unique_ptr<Job> taken = std::move(*job);
  client->jobs.erase(job);
  if (client->jobs.empty()) clients_.erase(client);
  --size_;
  return taken;
}

std::unique_ptr<Job> FairQueue::pop(FunctionRef<bool(const Job&)> can_start) {
  for (auto client = clients_.begin(); client != clients_.end(); ++client) {
    const auto job = std::ranges::find_if(client->jobs, [&](const auto& j) { return can_start(*j); });
    if (job == client->jobs.end()) continue;
    clients_.splice(clients_.end(), clients_, client);  // its next turn is after all others'
    return take(client, job);
  }
  return nullptr;
}

std::unique_ptr<Job> FairQueue::remove(RequestId id) {
  for (auto client = clients_.begin(); client != clients_.end(); ++client) {
    const auto job = std::ranges::find(client->jobs, id, [](const auto& j) { return j->id; });
    if (job != client->jobs.end()) return take(client, job);
  }
  return nullptr;
}

std::vector<std::unique_ptr<Job>> FairQueue::remove_all() {
  std::vector<std::unique_ptr<Job>> all;
  while (size_ > 0) all.push_back(take(clients_.begin(), clients_.front().jobs.begin()));
  return all;
}

}  // namespace terrace::serve
