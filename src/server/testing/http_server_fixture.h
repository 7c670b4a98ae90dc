#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "server/http/http_server.h"
#include "server/testing/http_client.h"

namespace tandem::server::http {

/// "/echo" answers with the request; "/stream" leaves the responder to the test.
class ScriptedHandler final : public Handler {
 public:
  std::unique_ptr<Exchange> handle(Request request, Responder& responder) override {
    ++requests;
    if (request.path == "/stream") {
      responder.start_stream();
      stream = &responder;
      ++streams_open;
      return std::make_unique<Open>(*this);
    }
    responder.respond({.body = request.method + " " + request.path + " " + request.body});
    return nullptr;
  }

  Response describe(const Refusal& refusal) override {
    return {.status = refusal.status, .body = refusal.code};
  }

  Responder* stream = nullptr;
  std::atomic<int> requests = 0;
  std::atomic<int> streams_open = 0;

 private:
  struct Open final : Exchange {
    explicit Open(ScriptedHandler& handler) : handler(handler) {}
    ~Open() override {
      handler.stream = nullptr;
      --handler.streams_open;
    }
    ScriptedHandler& handler;
  };
};

/// A server over the scripted handler, on a thread of its own; stopped at the end of the test.
class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpServer::Options options = {}) {
    options.port = 0;
    auto created = HttpServer::create(std::move(options));
    ASSERT_TRUE(created.ok()) << created.error().what;
    server_ = std::move(*created);
    thread_ = std::thread([this] { server_->run(handler_); });
  }

  void TearDown() override {
    if (!server_) return;
    server_->stop();
    thread_.join();
  }

  testing::HttpClient client(int receive_bytes = 0) {
    return testing::HttpClient(server_->port(), receive_bytes);
  }

  /// Runs on the I/O thread and waits for it.
  void on_loop(std::function<void()> action) {
    struct Call final : Task {
      std::function<void()> action;
      std::promise<void> done;
      void run() override {
        action();
        done.set_value();
      }
    };
    auto call = std::make_unique<Call>();
    call->action = std::move(action);
    auto done = call->done.get_future();
    server_->post(std::move(call));
    ASSERT_EQ(done.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  }

  HttpServer::Counters counters() {
    HttpServer::Counters copy;
    on_loop([&] { copy = server_->counters(); });
    return copy;
  }

  void await(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "the condition never came true";
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  void write(const std::string& bytes) {
    on_loop([&] {
      if (handler_.stream != nullptr) handler_.stream->write(bytes);
    });
  }

  ScriptedHandler handler_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

}  // namespace tandem::server::http
