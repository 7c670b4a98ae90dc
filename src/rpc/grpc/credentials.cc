#include "rpc/grpc/credentials.h"

#include <cstdint>

#include "io/file.h"

namespace tandem::rpc {
namespace {

constexpr size_t kSecretBytesMin = 16;
constexpr size_t kFileBytesMax = 1 << 20;

}  // namespace

Result<Credentials> read_credentials(const CredentialFiles& files) {
  Credentials credentials;
  const auto read = [](const std::filesystem::path& path, std::string& target) -> Result<void> {
    if (!path.empty()) target = TANDEM_TRY(io::read_file(path, kFileBytesMax));
    return {};
  };
  TANDEM_TRY(read(files.secret, credentials.secret));
  TANDEM_TRY(read(files.authority, credentials.authority));
  TANDEM_TRY(read(files.certificate, credentials.certificate));
  TANDEM_TRY(read(files.key, credentials.key));
  // An editor ends the file with a newline that is not meant.
  const size_t end = credentials.secret.find_last_not_of(" \t\r\n");
  credentials.secret.resize(end == std::string::npos ? 0 : end + 1);
  if (!files.secret.empty() && credentials.secret.size() < kSecretBytesMin) {
    return make_error(Code::kInvalidArgument,
                      files.secret.string() + " holds " +
                          std::to_string(credentials.secret.size()) + " bytes; a secret needs " +
                          std::to_string(kSecretBytesMin) + ", e.g. of `openssl rand -hex 32`");
  }
  return credentials;
}

Result<void> check_credentials(const Credentials& credentials) {
  const bool all = !credentials.authority.empty() && !credentials.certificate.empty() &&
                   !credentials.key.empty();
  const bool any = !credentials.authority.empty() || !credentials.certificate.empty() ||
                   !credentials.key.empty();
  if (any && !all) {
    return make_error(Code::kInvalidArgument,
                      "TLS needs all three: the authority, a certificate and its key");
  }
  if (!any && credentials.secret.empty()) {
    return make_error(Code::kInvalidArgument,
                      "without credentials anybody could join the cluster; give a secret, or an "
                      "authority, a certificate and a key");
  }
  if (!credentials.secret.empty() && credentials.secret.size() < kSecretBytesMin) {
    return make_error(Code::kInvalidArgument,
                      "the secret has " + std::to_string(credentials.secret.size()) +
                          " bytes; at least " + std::to_string(kSecretBytesMin) + " are needed");
  }
  return {};
}

std::shared_ptr<grpc::ChannelCredentials> dialling_credentials(const Credentials& credentials) {
  if (credentials.key.empty()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = credentials.authority,
                               .pem_private_key = credentials.key,
                               .pem_cert_chain = credentials.certificate});
}

std::shared_ptr<grpc::ServerCredentials> listening_credentials(const Credentials& credentials) {
  if (credentials.key.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = credentials.authority;
  options.pem_key_cert_pairs.push_back({credentials.key, credentials.certificate});
  return grpc::SslServerCredentials(options);
}

bool is_same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  // volatile keeps the compiler from leaving the loop at the first difference.
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<uint8_t>(difference |
                                      (static_cast<uint8_t>(a[i]) ^ static_cast<uint8_t>(b[i])));
  }
  return difference == 0;
}

bool shows_secret(const grpc::ServerContextBase& context, const std::string& secret) {
  if (secret.empty()) return true;  // certificates have been checked
  const auto& metadata = context.client_metadata();
  const auto shown = metadata.find(kSecretKey);
  return shown != metadata.end() &&
         is_same_secret({shown->second.data(), shown->second.size()}, secret);
}

}  // namespace tandem::rpc
