// Goal: a request reads the same however its bytes are cut, and paths and ids come out safe.
// Method: every split of one request in two and bytewise; tables for heads and the text helpers.
#include "server/http/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::server::http {
namespace {

using ::testing::HasSubstr;

TEST(RequestParser, ReadsTheSameForEverySplit) {
  const std::string bytes =
      "POST http://host/v1/x?y=%20 HTTP/1.1\r\nHost: a\r\nX-Request-Id: id7\r\n"
      "Content-Length: 4\r\n\r\nbodyGET";
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    RequestParser parser({});
    std::string waiting = bytes.substr(0, cut);
    waiting.erase(0, parser.feed(waiting));
    waiting += bytes.substr(cut);
    if (!parser.done()) waiting.erase(0, parser.feed(waiting));
    ASSERT_TRUE(parser.done()) << cut;
    EXPECT_EQ(waiting, "GET") << cut;
    const Request request = parser.take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/x");
    EXPECT_EQ(request.request_id, "id7");
    EXPECT_EQ(request.body, "body");
    EXPECT_TRUE(request.keep_alive);
  }
}

TEST(RequestParser, ReadsChunkedBodiesBytewise) {
  for (const char* body : {"0\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n", "0\r\nA: b\r\n\r\n",
                           "1;x=y\r\na\r\n2\r\nbc\r\n0;z\r\nA: b\r\n\r\n"}) {
    const std::string bytes =
        std::string("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n") + body;
    RequestParser parser({});
    std::string waiting;
    for (const char byte : bytes) {
      ASSERT_FALSE(parser.done()) << body;
      waiting += byte;
      waiting.erase(0, parser.feed(waiting));
    }
    ASSERT_TRUE(parser.done()) << body;
    EXPECT_EQ(waiting, "");
    const std::string read = parser.take().body;
    EXPECT_EQ(read, body[0] == '0' ? "" : "abc");
  }
}

TEST(RequestParser, BoundsChunkExtensionsAndTrailers) {
  for (const char* start : {"5;", "0\r\nA: "}) {
    RequestParser parser({.header_bytes_max = 1000});
    std::string waiting =
        std::string("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n") + start;
    for (int i = 0; i < 1100 && !parser.refusal(); ++i) {
      waiting.erase(0, parser.feed(waiting));
      waiting += 'a';
    }
    ASSERT_TRUE(parser.refusal()) << start;
    EXPECT_EQ(parser.refusal()->status, 431);
  }
}

TEST(RequestParser, WantsOneHost) {
  struct Case {
    std::string head;
    bool is_read;
  };
  const Case cases[] = {
      {"GET / HTTP/1.1\r\nHost: a:8000\r\n", true},
      {"GET / HTTP/1.1\r\nHost:\r\n", true},  // of a target that has no authority
      {"GET / HTTP/1.1\r\n", false},
      {"GET http://a/ HTTP/1.1\r\n", false},  // nor is the target's authority enough
      {"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n", false},
      {"GET / HTTP/1.1\r\nHost: a\r\nAccept: b\r\nHost: c\r\n", false},
      {"GET / HTTP/1.0\r\n", true},
      {"GET / HTTP/1.0\r\nHost: a\r\n", true},
      {"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n", false},
  };
  for (const Case& one : cases) {
    RequestParser parser({});
    parser.feed(one.head + "\r\n");
    EXPECT_EQ(parser.done(), one.is_read) << one.head;
    ASSERT_EQ(parser.refusal().has_value(), !one.is_read) << one.head;
    if (one.is_read) continue;
    EXPECT_EQ(parser.refusal()->status, 400);
    EXPECT_EQ(parser.refusal()->code, "bad_http");
    EXPECT_THAT(parser.refusal()->message, HasSubstr("Host"));
  }
}

TEST(RequestParser, RefusesWhatItCannotMeetOrDecode) {
  struct Case {
    const char* header;
    int status;  // 0: none
  };
  for (const Case& c : std::initializer_list<Case>{{"Expect: 100-Continue", 0},
                                                   {"Expect: foo", 417},
                                                   {"Content-Encoding: gzip", 415},
                                                   {"Content-Encoding: identity", 0}}) {
    RequestParser parser({});
    parser.feed(std::string("POST / HTTP/1.1\r\nHost: a\r\n") + c.header +
                "\r\nContent-Length: 2\r\n\r\n{}");
    EXPECT_EQ(parser.refusal() ? parser.refusal()->status : 0, c.status) << c.header;
  }
  RequestParser old({});
  old.feed("GET / HTTP/1.0\r\nExpect: foo\r\n\r\n");
  EXPECT_FALSE(old.refusal()) << "HTTP/1.0 has no expectations";
}

TEST(RequestParser, DecodesPaths) {
  EXPECT_EQ(percent_decode("/a%2fb%20c"), "/a/b c");
  EXPECT_EQ(percent_decode("%"), "%");
  EXPECT_EQ(percent_decode("%4"), "%4");
  EXPECT_EQ(percent_decode("%zz%41"), "%zzA");
}

TEST(RequestParser, AcceptsOnlyPrintableIds) {
  EXPECT_TRUE(is_usable_request_id("a-1"));
  EXPECT_FALSE(is_usable_request_id(""));
  EXPECT_FALSE(is_usable_request_id("a b"));
  EXPECT_FALSE(is_usable_request_id("a\xc3\xa9"));
  EXPECT_FALSE(is_usable_request_id(std::string(129, 'a')));
}

}  // namespace
}  // namespace tandem::server::http
