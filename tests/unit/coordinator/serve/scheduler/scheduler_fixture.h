// A scheduler over the tiny model, asked from the test's threads.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "coordinator/serve/scheduler/scheduler.h"
#include "tests/unit/coordinator/serve/scheduler/served_model.h"

namespace terrace::test {

inline serve::SchedulerOptions with(std::uint32_t slots, std::uint32_t queue_limit = 64) {
  serve::SchedulerOptions options;
  options.slots = slots;
  options.queue_limit = queue_limit;
  options.chunk_rows = 8;
  options.model_hash = "a model";
  return options;
}

// Ends only when it is cancelled or stopped, or by itself a good while later.
inline serve::Request long_request(std::int32_t seed) { return request_for(some_tokens(5, seed), 240); }

class SchedulerTest : public testing::Test {
 protected:
  std::unique_ptr<serve::Scheduler> make(serve::SchedulerOptions options) {
    return value_of(serve::Scheduler::make(model_.parts(), std::move(options)));
  }
  std::shared_ptr<Heard> ask(serve::Scheduler& scheduler, serve::Request request) {
    auto heard = std::make_shared<Heard>();
    last_ = value_of(scheduler.submit(std::move(request), heard));
    return heard;
  }
  static void expect_alone(Heard& heard, const serve::Request& request) {
    ASSERT_TRUE(heard.wait_for_end());
    ASSERT_FALSE(heard.error()) << heard.error()->text();
    EXPECT_EQ(heard.answer(), tiny_alone().run(request).first);
  }
  // A prompt that reaches the scheduler's thread while a listener holds it: nothing ends before the test says so.
  class Gate final : public serve::Listener {
   public:
    void on_piece(const serve::Piece&, const serve::Timings&) override {
      std::unique_lock lock(mutex_);
      reached_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    void on_end(const serve::End&) override {}
    void on_error(const Error&, const serve::Timings&) override {}
    void wait_until_reached() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return reached_; });
    }
    void open() {
      const std::lock_guard lock(mutex_);
      open_ = true;
      changed_.notify_all();
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool reached_ = false, open_ = false;
  };
  std::filesystem::path file(const char* name) const {
    return std::filesystem::path(testing::TempDir()) / (std::string("scheduler_test-") + name);
  }

  Serial serial_;
  ServedModel model_{ServedModel::trunk(8), serial_};
  serve::RequestId last_ = 0;
};

}  // namespace terrace::test
