#include "actors/trust/certificate_files.hpp"

#include "config/values.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace troupe::trust {

namespace {

constexpr mode_t key_mode = 0600;
constexpr mode_t certificate_mode = 0644;

error file_error(const char* code, const std::string& path, const std::string& why) {
  return {code, path + ": " + why};
}

/// As a certificate has it when it is read again.
std::string canonical(const std::string& address) {
  std::array<unsigned char, sizeof(in6_addr)> binary{};
  std::array<char, INET6_ADDRSTRLEN> text{};
  for (const int family : {AF_INET, AF_INET6})
    if (inet_pton(family, address.c_str(), binary.data()) == 1)
      return inet_ntop(family, binary.data(), text.data(), text.size());
  return address;
}

bool write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return ::fsync(fd) == 0;
}

}  // namespace

request host_request(const config::cluster& c, const config::host& h) {
  request out;
  out.name = h.name;
  out.as = role::host;
  out.dns = {h.name};
  const auto add = [&](const std::string& address) {
    const auto text = canonical(address);
    if (config::is_wildcard(text) ||
        std::find(out.addresses.begin(), out.addresses.end(), text) != out.addresses.end())
      return;
    out.addresses.push_back(text);
  };
  add(h.address);
  if (h.admin_port != 0) add(h.admin_address);
  for (const auto& g : c.gateways)
    if (g.host == h.name) add(g.address);
  return out;
}

std::vector<std::string> console_names(const certificate_folder& folder) {
  constexpr std::string_view before = "console-", behind = ".pem";
  std::vector<std::string> out;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator{folder.path, failure}) {
    const auto name = entry.path().filename().string();
    if (name.size() > before.size() + behind.size() && name.starts_with(before) &&
        name.ends_with(behind))
      out.push_back(name.substr(before.size(), name.size() - before.size() - behind.size()));
  }
  std::sort(out.begin(), out.end());
  return out;
}

expected<std::string> read_pem_file(const std::string& path) {
  // A pipe would keep whoever reads waiting.
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0)
    return file_error("file_unreadable", path, std::strerror(errno));
  if (!S_ISREG(s.st_mode)) return file_error("file_unreadable", path, "it is not a file");
  errno = 0;
  std::ifstream in{path, std::ios::binary};
  if (!in) return file_error("file_unreadable", path, std::strerror(errno));
  std::string text(pem_bytes_max + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || in.gcount() == 0)
    return file_error("file_unreadable", path, "it is empty, or cannot be read");
  if (static_cast<std::size_t>(in.gcount()) > pem_bytes_max)
    return file_error("file_unreadable", path, "it is longer than any certificate");
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

expected<void> write_pem_file(const std::string& path, const std::string& text, bool is_key,
                              existing old) {
  const auto draft = fmt::format("{}.new.{}", path, ::getpid());
  const auto mode = is_key ? key_mode : certificate_mode;
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return file_error("file_unwritable", draft, std::strerror(errno));
  // Whatever the mask of the shell is.
  bool done = ::fchmod(fd, mode) == 0 && write_all(fd, text);
  int why = errno;
  done = ::close(fd) == 0 && done;
  if (done) {
    // A link fails where the path exists; a rename replaces it.
    done = (old == existing::keep ? ::link(draft.c_str(), path.c_str())
                                  : ::rename(draft.c_str(), path.c_str())) == 0;
    why = errno;
  }
  ::unlink(draft.c_str());
  if (done) return ok;
  if (why == EEXIST)
    return file_error("file_exists", path, "it exists, and is not overwritten unless you say so");
  return file_error("file_unwritable", path, std::strerror(why));
}

expected<void> write_identity(const std::string& certificate_path, const std::string& key_path,
                              const identity_pem& what, existing old) {
  if (auto done = write_pem_file(key_path, what.key, true, old); !done) return done;
  return write_pem_file(certificate_path, what.certificate, false, old);
}

expected<identity_pem> read_identity(const std::string& certificate_path,
                                     const std::string& key_path) {
  auto certificate = read_pem_file(certificate_path);
  if (!certificate) return std::move(certificate).error();
  auto key = read_pem_file(key_path);
  if (!key) return std::move(key).error();
  identity_pem out{*std::move(certificate), *std::move(key)};
  auto fits = check_pair(out);
  if (fits) return out;
  const auto& at = fits.error().code == "certificate_unreadable" ? certificate_path : key_path;
  return file_error(fits.error().code.c_str(), at, fits.error().message);
}

}  // namespace troupe::trust
