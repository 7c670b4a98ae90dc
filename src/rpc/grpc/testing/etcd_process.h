#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "io/scratch_folder.h"
#include "io/socket.h"

namespace tandem::rpc {

/// A real etcd of one process on free ports, with its data in a folder that goes with it.
class EtcdProcess {
 public:
  EtcdProcess() {
    // Another process may take a port between the search and the start.
    for (int attempt = 0; attempt < 5; ++attempt) {
      port_ = free_port();
      peer_port_ = free_port();
      if (start()) return;
    }
    ADD_FAILURE() << "etcd does not start (is the package etcd-server installed?); log: "
                  << folder_.path();
  }
  ~EtcdProcess() { kill(); }

  int port() const { return port_; }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }

  void freeze() const { ::kill(process_id_, SIGSTOP); }
  void thaw() const { ::kill(process_id_, SIGCONT); }
  void kill() {
    if (process_id_ < 0) return;
    ::kill(process_id_, SIGKILL);
    ::waitpid(process_id_, nullptr, 0);
    process_id_ = -1;
  }
  /// On the same port, with its data or without.
  void start_again(bool keep_data) {
    if (!keep_data) data_ += 1;
    EXPECT_TRUE(start());
  }

 private:
  static int free_port() { return io::Listener::listen_tcp({"127.0.0.1", 0})->port(); }

  bool start() {
    const std::string client = "http://" + endpoint();
    const std::string peer = "http://127.0.0.1:" + std::to_string(peer_port_);
    const std::vector<std::string> words = {
        "etcd",
        "--data-dir=" + (folder_.path() / ("data" + std::to_string(data_))).string(),
        "--listen-client-urls=" + client,
        "--advertise-client-urls=" + client,
        "--listen-peer-urls=" + peer,
        "--initial-advertise-peer-urls=" + peer,
        "--initial-cluster=default=" + peer,
        "--initial-cluster-token=" + std::to_string(data_),  // makes another cluster id
        "--unsafe-no-fsync",
        "--logger=zap",
        "--log-level=error"};
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const std::string log = (folder_.path() / "log").string();
    process_id_ = ::fork();
    if (process_id_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also when the test crashes
      const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(file, 1);
      ::dup2(file, 2);
      ::execvp("etcd", arguments.data());
      ::_exit(127);
    }
    return wait_until_it_listens();
  }

  bool wait_until_it_listens() {
    for (int i = 0; i < 2000; ++i) {
      if (::waitpid(process_id_, nullptr, WNOHANG) != 0) {
        process_id_ = -1;
        return false;
      }
      const auto now = std::chrono::steady_clock::now();
      if (io::Socket::connect_tcp({"127.0.0.1", port_}, now + std::chrono::seconds(1)).ok()) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  io::ScratchFolder folder_;
  int port_ = 0;
  int peer_port_ = 0;
  int data_ = 0;
  pid_t process_id_ = -1;
};

}  // namespace tandem::rpc
