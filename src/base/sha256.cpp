#include "base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/file.h"

namespace opdiff {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    OPDIFF_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void update(std::string_view bytes) {
    OPDIFF_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    OPDIFF_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &length) == 1);
    std::string text;
    for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

Expected<std::string> sha256_of_file(const std::filesystem::path& path) {
  OPDIFF_TRY(const std::uint64_t size, regular_file_size(path));
  std::vector<char> piece(1 << 20);
  Sha256 hash;
  for (std::uint64_t offset = 0; offset < size;) {
    const std::uint64_t bytes = std::min<std::uint64_t>(piece.size(), size - offset);
    OPDIFF_RETURN_IF_ERROR(read_file_part(path, offset, piece.data(), bytes));
    hash.update({piece.data(), bytes});
    offset += bytes;
  }
  return hash.hex();
}

}  // namespace opdiff
