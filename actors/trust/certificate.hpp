#pragma once

#include "messages/base/expected.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::trust {

using time_point = std::chrono::system_clock::time_point;
using days = std::chrono::duration<std::int64_t, std::ratio<86'400>>;

/// How long certificates hold, unless told otherwise.
inline constexpr days ca_validity{3'650};
inline constexpr days certificate_validity{365};
/// From here on its end is announced: time enough for a person to renew it.
inline constexpr days expiry_notice{30};
/// A certificate holds from so long before it was made: clocks of hosts differ.
inline constexpr std::chrono::minutes clock_slack{60};

/// What a certificate of the cluster's CA allows its holder; it stands in the subject's OU.
enum class role : std::uint8_t {
  none,       ///< not one of ours
  ca,         ///< signs the others
  host,       ///< a node: speaks on links, and serves
  operator_,  ///< a console that may give orders
  viewer,     ///< a console that may look
};

/// `operator`, `viewer`, `host`, `ca`, `none`.
std::string_view to_string(role r);
role role_from(std::string_view text);

/// PEM of a certificate and of its private key.
struct identity_pem {
  std::string certificate;
  std::string key;
};

/// What a certificate is to say.
struct request {
  std::string name;  ///< of the host or the person; the subject's CN
  role as = role::host;
  std::vector<std::string> dns = {};        ///< subject alternative names
  std::vector<std::string> addresses = {};  ///< IP addresses, written out
  days validity = certificate_validity;
};

/// What a certificate says.
struct facts {
  std::string name;
  role as = role::none;
  std::vector<std::string> dns;
  std::vector<std::string> addresses;
  time_point not_before;
  time_point not_after;
};

/// A CA that signs itself, for a cluster of this id. Errors: `openssl_failed` with its reason.
expected<identity_pem> make_ca(const std::string& cluster_id, days validity, time_point now);

/// A certificate for a new key, or for `key` (PEM) where it is given, signed by the CA. It never
/// outlives the CA. Errors: `openssl_failed`, `certificate_unreadable`, `key_unreadable`,
/// `key_mismatch` (the CA's own), `certificate_expired` (the CA's own).
expected<identity_pem> issue(const identity_pem& ca, const request& what, time_point now,
                             const std::string& key = {});

/// The first certificate of a PEM text. Errors: `certificate_unreadable`.
expected<facts> read_certificate(const std::string& pem);

/// Whether the key is the certificate's. Errors: `certificate_unreadable`, `key_unreadable`,
/// `key_mismatch`.
expected<void> check_pair(const identity_pem& pair);

/// Whether the CA has signed it, and it holds now. Errors: `certificate_unreadable`,
/// `not_signed_by_ca`, `certificate_expired`, `certificate_not_yet_valid`; each says what to do.
expected<void> check_issued(const std::string& certificate, const std::string& ca, time_point now);

/// The names and addresses that `what` asks for and the certificate lacks.
std::vector<std::string> missing_names(const facts& has, const request& what);

/// `2027-01-31`, in UTC.
std::string format_date(time_point t);

}  // namespace troupe::trust
