#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "io/file.h"
#include "io/scratch_folder.h"
#include "rpc/grpc_channel.h"

namespace tandem::rpc {

/// A certificate authority of a test, made anew so that nothing expires and no key is published.
class TestAuthority {
 public:
  TestAuthority() {
    run("openssl ecparam -genkey -name prime256v1 -noout -out authority.key");
    run("openssl req -x509 -new -key authority.key -days 1 -subj /CN=test -out authority.pem");
  }

  /// A certificate for the name "tandem" and its key, signed by this authority.
  Credentials issue() {
    const std::string name = "peer" + std::to_string(++issued_);
    run("openssl ecparam -genkey -name prime256v1 -noout -out " + name + ".key");
    run("openssl req -new -key " + name + ".key -subj /CN=tandem -out " + name + ".csr");
    folder_.write("names", "subjectAltName=DNS:tandem\n");
    run("openssl x509 -req -in " + name + ".csr -CA authority.pem -CAkey authority.key " +
        "-CAcreateserial -days 1 -extfile names -out " + name + ".pem");
    CredentialFiles files;
    files.authority = folder_.path() / "authority.pem";
    files.certificate = folder_.path() / (name + ".pem");
    files.key = folder_.path() / (name + ".key");
    return *read_credentials(files);
  }

 private:
  void run(const std::string& command) {
    const std::string folder = folder_.path().string();
    ASSERT_EQ(std::system(("cd " + folder + " && " + command + " 2>>log").c_str()), 0)
        << command << "\n"
        << *io::read_file(folder_.path() / "log", 65536);
  }

  io::ScratchFolder folder_;
  int issued_ = 0;
};

}  // namespace tandem::rpc
