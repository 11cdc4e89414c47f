#include "actors/request/leg.hpp"

#include <capnp/serialize.h>
#include <unistd.h>

#include <algorithm>
#include <span>

namespace troupe::request {

namespace {

capnp::ReaderOptions trusted() {
  // Our own gateway built it under its own limits; it may be as large as limits.prompt_bytes_max.
  capnp::ReaderOptions o;
  o.traversalLimitInWords = ~std::uint64_t{0};
  return o;
}

/// The part of a prompt's chain that is sent.
std::span<const std::uint64_t> sent_chain(const prompt_content& content) {
  return std::span{content.chain}.first(std::min(content.chain.size(), chain_blocks_sent_max));
}

void write(capnp::List<std::uint64_t>::Builder out, std::span<const std::uint64_t> chain) {
  for (std::size_t i = 0; i < chain.size(); ++i) out.set(static_cast<unsigned>(i), chain[i]);
}

enum class long_content : bool { in_parts, inlined };

void write_job(msg::Job::Builder out, const job_terms& t, kj::ArrayPtr<const capnp::word> words,
               long_content how, std::span<const std::uint64_t> chain, const stream_ledger& done) {
  write(out.initKey(), t.key);
  out.setReplyTo(t.reply_to);
  auto content = out.initContent();
  const auto bytes = words.asBytes();
  content.setBytes(static_cast<std::uint32_t>(bytes.size()));
  if (bytes.size() <= part_bytes || how == long_content::inlined) content.setInline(bytes);
  write(out.initChain(static_cast<unsigned>(chain.size())), chain);
  out.setDeadlineMs(static_cast<std::uint32_t>(t.deadline.count()));
  out.setLeaseMs(static_cast<std::uint32_t>(t.lease.count()));
  out.setAlone(t.alone);
  out.setPrefixScope(t.prefix_scope);
  out.setTransferToken(kj::arrayPtr(t.token.data(), t.token.size()));
  if (done.anything()) done.write(out.initResume());
}

std::size_t hint(kj::ArrayPtr<const capnp::word> words, std::span<const std::uint64_t> chain,
                 const stream_ledger& done) {
  return 1024 + std::min(words.asBytes().size(), part_bytes) + chain.size() * 8 +
         done.sampled() * 4;
}

/// The first attempt's message did fit: it is what was sampled since that does not.
template <class Schema>
expected<msg::envelope<Schema>> frozen(msg::draft<Schema>&& d, const stream_ledger& done) {
  auto e = std::move(d).freeze();
  if (e || !done.anything()) return e;
  return error{"resume_too_large", "The answer cannot go on at another worker: with the " +
                                       std::to_string(done.sampled()) +
                                       " tokens so far the request is too large for a message. " +
                                       e.error().message};
}

}  // namespace

kj::Array<capnp::word> without_prompt(const prompt_content& content) {
  capnp::FlatArrayMessageReader reader{content.words, trusted()};
  auto in = reader.getRoot<msg::Completion>();
  capnp::MallocMessageBuilder builder;
  auto out = builder.initRoot<msg::Completion>();
  out.setModel(in.getModel());
  out.getPrompt().setNone();
  out.setChoices(in.getChoices());
  out.setMaxTokens(in.getMaxTokens());
  out.setSampling(in.getSampling());
  out.setStop(in.getStop());
  out.setLogprobs(in.getLogprobs());
  out.setTopLogprobs(in.getTopLogprobs());
  out.setIsChat(in.getIsChat());
  out.setIgnoreEos(in.getIgnoreEos());
  return capnp::messageToFlatArray(builder);
}

expected<msg::envelope<msg::RouteRequest>> make_route_request(const submission& s, const leg& l,
                                                              const job_key& key,
                                                              const std::string& reply_to,
                                                              const control::assignment_number& by,
                                                              const std::string& move_from) {
  const auto& content = *s.prompts[l.prompt];
  const auto blocks = sent_chain(content);
  msg::draft<msg::RouteRequest> d{512 + blocks.size() * 8};
  write(d->initKey(), key);
  d->setReplyTo(reply_to);
  d->setModel(s.model);
  d->setPromptBytes(static_cast<std::uint32_t>(content.bytes()));
  write(d->initChain(static_cast<unsigned>(blocks.size())), blocks);
  d->setMaxTokens(s.max_tokens);
  d->setChoices(s.choices);
  auto exclude = d->initExclude(static_cast<unsigned>(l.exclude.size()));
  for (std::size_t i = 0; i < l.exclude.size(); ++i)
    exclude.set(static_cast<unsigned>(i), l.exclude[i]);
  d->setSession(session_name(s));
  d->setResumedTokens(l.ledger.sampled());
  d->setMoveFrom(move_from);
  d->setQuarantine(l.alone());
  d->setWorkload(s.tenant);
  d->setShardKey(l.way_now(s.model).key);
  d->setTerm(by.term);
  d->setAssignmentGeneration(by.generation);
  return std::move(d).freeze();
}

expected<msg::envelope<msg::PrefillJob>> make_prefill_job(const job_terms& t,
                                                          const prompt_content& content,
                                                          const stream_ledger& done,
                                                          msg::Route::Reader route) {
  const auto chain = sent_chain(content);
  msg::draft<msg::PrefillJob> d{hint(content.words, chain, done)};
  write_job(d->initJob(), t, content.words, long_content::in_parts, chain, done);
  d->setDecode(route.getDecode());
  return frozen(std::move(d), done);
}

expected<msg::envelope<msg::DecodeJob>> make_decode_job(const job_terms& t,
                                                        const prompt_content& content,
                                                        const stream_ledger& done,
                                                        bool self_prefill,
                                                        msg::Route::Reader route) {
  const auto chain = sent_chain(content);
  if (self_prefill) {
    msg::draft<msg::DecodeJob> d{hint(content.words, chain, done)};
    write_job(d->initJob(), t, content.words, long_content::in_parts, chain, done);
    d->getSource().setSelf();
    return frozen(std::move(d), done);
  }
  auto rest = without_prompt(content);
  msg::draft<msg::DecodeJob> d{hint(rest, chain, done)};
  // Parts go to the one worker that renders; what is too long for this message is refused.
  write_job(d->initJob(), t, rest, long_content::inlined, chain, done);
  d->getSource().setPrefill(route.getPrefill());
  return frozen(std::move(d), done);
}

msg::envelope<msg::MoveJob> make_move_job(const job_key& key, const pending_move& move,
                                          msg::WorkerRef::Reader decode) {
  msg::draft<msg::MoveJob> d;
  write(d->initKey(), key);
  d->setNextAttempt(move.attempt);
  d->setDecode(decode);
  d->setTransferToken(kj::arrayPtr(move.token.data(), move.token.size()));
  return std::move(d).freeze().value();
}

expected<msg::envelope<msg::PromptPart>> make_part(const job_key& key,
                                                   const prompt_content& content,
                                                   std::size_t offset) {
  const auto all = content.words.asPtr().asBytes();
  const auto size = std::min(part_bytes, all.size() - offset);
  msg::draft<msg::PromptPart> d{size + 256};
  write(d->initKey(), key);
  d->setOffset(static_cast<std::uint32_t>(offset));
  d->setBytes(all.slice(offset, offset + size));
  return std::move(d).freeze();
}

std::vector<std::uint8_t> one_time_token() {
  std::vector<std::uint8_t> token(16);
  if (::getentropy(token.data(), token.size()) != 0)
    token.clear();  // workers refuse an empty token
  return token;
}

const char* name_of(msg::TransferPlan p) {
  switch (p) {
  case msg::TransferPlan::LOCAL:
    return "local";
  case msg::TransferPlan::FULL:
    return "full";
  case msg::TransferPlan::FROM_POSITION:
    return "fromPosition";
  case msg::TransferPlan::MOVE:
    return "move";
  case msg::TransferPlan::DECODE_PREFILLS:
    break;
  }
  return "decodePrefills";
}

failure read(msg::Failure::Reader f) {
  failure result;
  result.http_status = f.getHttpStatus() == 0 ? 500 : f.getHttpStatus();
  result.code = f.getCode().cStr();
  result.message = f.getMessage().cStr();
  result.parameter = f.getParameter().cStr();
  result.retry_after = std::chrono::milliseconds{f.getRetryAfterMs()};
  return result;
}

failure unsendable(const error& why) {
  // The client did nothing wrong when it is the answer that has grown too large.
  const int status = why.code == "resume_too_large" ? 503 : 413;
  return {status, why.code, why.message, why.parameter, {}};
}

void fill(attempt_record& r, msg::PrefillDone::Reader in) {
  r.prefill_done = true;
  r.queue_ms = static_cast<double>(in.getQueueUs()) / 1000;
  r.compute_ms = static_cast<double>(in.getComputeUs()) / 1000;
  r.prefill_cached_tokens = in.getCachedTokens();
  r.transfer_bytes = in.getTransferBytes();
  r.pieces = in.getPieces();
  r.transfer_ms = static_cast<double>(in.getTransferUs()) / 1000;
  r.exposed_ms = static_cast<double>(in.getExposedUs()) / 1000;
  r.transport = in.getTransport().cStr();
  r.from_token = in.getFromToken();
  r.to_token = in.getToToken();
}

}  // namespace troupe::request
