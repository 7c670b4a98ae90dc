#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::server::testing {

/// A blocking HTTP client for tests: it sends exactly the bytes it is told to and reads an answer
/// with its own small reader, independent of the server's code. Every wait ends after 10 s.
class HttpClient {
 public:
  struct Answer {
    int status = 0;    ///< 0: the connection ended before an answer
    std::string head;  ///< status line and headers
    std::string body;  ///< chunks joined
    bool complete = false;
    std::string header(const std::string& name) const {
      const size_t at = head.find("\r\n" + name + ": ");
      if (at == head.npos) return "";
      const size_t begin = at + 2 + name.size() + 2;
      return head.substr(begin, head.find("\r\n", begin) - begin);
    }
  };

  /// `receive_bytes` > 0 makes a client with a small window, to play a slow reader.
  explicit HttpClient(uint16_t port, int receive_bytes = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~HttpClient() { close(); }
  HttpClient(HttpClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return connected_; }

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

  /// Sends no more, and still reads.
  void half_close() { shutdown(fd_, SHUT_WR); }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  void send_request(std::string_view method, std::string_view path, std::string_view body = "",
                    std::string_view headers = "") {
    std::string request(method);
    request += ' ';
    request += path;
    request += " HTTP/1.1\r\nHost: test\r\n";
    request += headers;
    if (!body.empty()) request += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    request += "\r\n";
    request += body;
    send(request);
  }

  Answer call(std::string_view method, std::string_view path, std::string_view body = "",
              std::string_view headers = "") {
    send_request(method, path, body, headers);
    return read_answer(method == "HEAD");
  }

  Answer read_answer(bool body_omitted = false) {
    Answer answer = read_head();
    if (answer.status == 0) return answer;
    if (body_omitted) {
      answer.complete = true;
    } else if (!answer.header("Content-Length").empty()) {
      const size_t size = std::strtoul(answer.header("Content-Length").c_str(), nullptr, 10);
      answer.complete = fill(size);
      answer.body = take(size);
    } else if (answer.header("Transfer-Encoding") == "chunked") {
      std::string chunk;
      while (read_chunk(chunk)) answer.body += chunk;
      answer.complete = last_chunk_seen_;
    } else {
      while (fill(input_.size() + 1)) {
      }
      answer.body = std::exchange(input_, "");
      answer.complete = true;
    }
    return answer;
  }

  Answer read_head() {
    Answer answer;
    size_t end;
    while ((end = input_.find("\r\n\r\n")) == input_.npos) {
      if (!fill(input_.size() + 1)) return answer;
    }
    answer.head = take(end + 4);
    answer.status = std::atoi(answer.head.c_str() + sizeof("HTTP/1.1"));
    last_chunk_seen_ = false;
    return answer;
  }

  /// False at the last chunk or when the connection ends.
  bool read_chunk(std::string& chunk) {
    size_t line_end;
    while ((line_end = input_.find("\r\n")) == input_.npos) {
      if (!fill(input_.size() + 1)) return false;
    }
    const size_t size = std::strtoul(take(line_end + 2).c_str(), nullptr, 16);
    if (!fill(size + 2)) return false;
    chunk = take(size);
    take(2);
    last_chunk_seen_ = size == 0;
    return size > 0;
  }

  /// True when the server closes the connection (unread bytes are dropped).
  bool wait_for_close() {
    while (fill(input_.size() + 1)) {
    }
    return ended_;
  }

 private:
  bool fill(size_t size) {
    while (input_.size() < size) {
      pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
      if (poll(&waiting, 1, 10'000) <= 0) {
        ADD_FAILURE() << "no bytes for 10 s";
        return false;
      }
      char buffer[65536];
      const ssize_t count = recv(fd_, buffer, sizeof(buffer), 0);
      if (count <= 0) {
        ended_ = true;
        return false;
      }
      input_.append(buffer, static_cast<size_t>(count));
    }
    return true;
  }

  std::string take(size_t size) {
    std::string bytes = input_.substr(0, size);
    input_.erase(0, size);
    return bytes;
  }

  int fd_ = -1;
  bool connected_ = false;
  bool ended_ = false;
  bool last_chunk_seen_ = false;
  std::string input_;
};

}  // namespace tandem::server::testing
