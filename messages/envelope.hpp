#pragma once

#include "messages/frozen.hpp"

#include <memory>
#include <utility>

namespace troupe::msg {

/// A frozen message whose root is `Schema`. One CAF type for each schema, so that typed actors
/// dispatch on what is said rather than on a blob. The name on BASP's wire is the literal C++
/// spelling: renaming a schema breaks peers.
template <class Schema>
struct envelope {
  frozen_message body;
};

/// Reads an envelope. Holds its own message reader and a reference to the body: cheap to make, not
/// to be shared between threads or moved.
///
///     msg::view<msg::TokenBatch> batch{e};
///     for (auto stream : batch->getStreams()) ...
template <class Schema>
class view {
 public:
  explicit view(const envelope<Schema>& e) : view(e.body) {}
  explicit view(frozen_message body)
      : body_(std::move(body)), reader_(table(body_), options(body_.byte_size())),
        root_(reader_.template getRoot<Schema>()) {}
  view(const view&) = delete;
  view& operator=(const view&) = delete;

  const typename Schema::Reader* operator->() const noexcept { return &root_; }
  typename Schema::Reader operator*() const noexcept { return root_; }

 private:
  static kj::ArrayPtr<const frozen_message::segment> table(const frozen_message& m) {
    auto s = m.segments();
    return kj::arrayPtr(s.data(), s.size());
  }
  /// Reading a message a few times over is fine. An amplification bomb is not: entries without
  /// content, of which a few bytes can claim a million, or the same content many times.
  static capnp::ReaderOptions options(std::size_t bytes) {
    capnp::ReaderOptions o;
    o.traversalLimitInWords = 8 * bytes / sizeof(capnp::word) + 1'024;
    o.nestingLimit = 64;
    return o;
  }

  frozen_message body_;
  capnp::SegmentArrayMessageReader reader_;
  typename Schema::Reader root_;
};

/// Builds an envelope.
///
///     msg::draft<msg::Ping> d;
///     d->setSequence(7);
///     auto e = std::move(d).freeze();   // expected<envelope<Ping>>
template <class Schema>
class draft {
 public:
  /// `bytes_hint`: the expected size; one segment, one write, when it is right.
  explicit draft(std::size_t bytes_hint = 1024)
      : builder_(std::make_unique<capnp::MallocMessageBuilder>(
            static_cast<unsigned>(bytes_hint / sizeof(capnp::word) + 8))),
        root_(builder_->template initRoot<Schema>()) {}

  typename Schema::Builder* operator->() noexcept { return &root_; }
  typename Schema::Builder operator*() noexcept { return root_; }

  /// Errors: `message_too_large`.
  expected<envelope<Schema>> freeze() && {
    auto body = frozen_message::freeze(std::move(builder_));
    if (!body) return std::move(body).error();
    return envelope<Schema>{*std::move(body)};
  }

 private:
  std::unique_ptr<capnp::MallocMessageBuilder> builder_;
  typename Schema::Builder root_;
};

}  // namespace troupe::msg
