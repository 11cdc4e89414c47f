#include "actors/request/leg.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <catch2/catch.hpp>

#include <cstring>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::request;

namespace {

/// A request with something in every field, and a prompt of `prompt_bytes`.
prompt_content content(std::size_t prompt_bytes, unsigned biases = 1) {
  capnp::MallocMessageBuilder b;
  auto c = b.initRoot<msg::Completion>();
  c.setModel("m");
  auto m = c.getPrompt().initMessages(1)[0];
  m.setRole("user");
  m.setContent(std::string(prompt_bytes, 'x'));
  c.setChoices(3);
  c.setMaxTokens(77);
  auto s = c.initSampling();
  s.setTemperature(0.5F);
  s.setTopP(0.25F);
  s.setTopK(11);
  s.setMinP(0.125F);
  s.setSeed(1ULL << 63U);
  s.setPresencePenalty(0.75F);
  s.setFrequencyPenalty(-0.75F);
  auto bias = s.initLogitBias(biases);
  bias[0].setToken(5);
  bias[0].setBias(-100);
  auto stop = c.initStop(2);
  stop.set(0, "END");
  stop.set(1, "\n\n");
  c.setLogprobs(true);
  c.setTopLogprobs(4);
  c.setToolsJson("[{}]");
  c.setIsChat(true);
  c.setIgnoreEos(true);
  prompt_content p;
  p.words = capnp::messageToFlatArray(b);
  p.chain = {1, 2, 3};
  return p;
}

job_terms terms() {
  return {{{1, 2}, 3, 4},
          "requests/h",
          std::chrono::milliseconds{60'000},
          std::chrono::milliseconds{3'000},
          std::vector<std::uint8_t>(16, 9)};
}

struct route {
  capnp::MallocMessageBuilder b;
  msg::Route::Builder r = b.initRoot<msg::Route>();
  route() {
    r.initPrefill().setName("prefill/p/a.0");
    auto d = r.initDecode();
    d.setName("decode/p/b.0");
    d.setGeneration(8);
  }
};

/// The content of a job as a worker gets it.
template <class F>
void read_content(kj::ArrayPtr<const kj::byte> bytes, F&& check) {
  REQUIRE(bytes.size() % sizeof(capnp::word) == 0);
  auto words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
  std::memcpy(words.begin(), bytes.begin(), bytes.size());
  capnp::ReaderOptions o;
  o.traversalLimitInWords = 1U << 24U;
  capnp::FlatArrayMessageReader reader{words, o};
  check(reader.getRoot<msg::Completion>());
}

}  // namespace

TEST_CASE(
    "a decode job that gets its prompt with the KV keeps all that sampling needs, and no prompt") {
  const auto p = content(10'000);
  route way;
  auto e = make_decode_job(terms(), p, stream_ledger{3}, false, way.r.asReader());
  REQUIRE(e);
  msg::view<msg::DecodeJob> job{*e};
  REQUIRE(job->getSource().isPrefill());
  CHECK(std::string{job->getSource().getPrefill().getName().cStr()} == "prefill/p/a.0");
  CHECK(job->getJob().getContent().getBytes() == job->getJob().getContent().getInline().size());
  CHECK(job->getJob().getContent().getBytes() < 1'000);
  read_content(job->getJob().getContent().getInline(), [](msg::Completion::Reader c) {
    CHECK(c.getPrompt().isNone());
    CHECK(std::string{c.getModel().cStr()} == "m");
    CHECK(c.getChoices() == 3);
    CHECK(c.getMaxTokens() == 77);
    CHECK(c.getSampling().getTemperature() == 0.5F);
    CHECK(c.getSampling().getTopP() == 0.25F);
    CHECK(c.getSampling().getTopK() == 11);
    CHECK(c.getSampling().getMinP() == 0.125F);
    CHECK(c.getSampling().getSeed() == 1ULL << 63U);
    CHECK(c.getSampling().getPresencePenalty() == 0.75F);
    CHECK(c.getSampling().getFrequencyPenalty() == -0.75F);
    REQUIRE(c.getSampling().getLogitBias().size() == 1);
    CHECK(c.getSampling().getLogitBias()[0].getBias() == -100);
    REQUIRE(c.getStop().size() == 2);
    CHECK(std::string{c.getStop()[1].cStr()} == "\n\n");
    CHECK(c.getLogprobs());
    CHECK(c.getTopLogprobs() == 4);
    CHECK(c.getIsChat());
    CHECK(c.getIgnoreEos());
  });
}

TEST_CASE("a job carries its key, terms, chain and what the client has") {
  const auto p = content(100);
  route way;
  stream_ledger done{1};
  capnp::MallocMessageBuilder b;
  auto delta = b.initRoot<msg::StreamDelta>();
  delta.initIds(1).set(0, 42);
  REQUIRE(done.take(delta.asReader()) == stream_ledger::verdict::fresh);

  auto e = make_prefill_job(terms(), p, done, way.r.asReader());
  REQUIRE(e);
  msg::view<msg::PrefillJob> job{*e};
  auto j = job->getJob();
  CHECK(msg::read(j.getKey()) == terms().key);
  CHECK(std::string{j.getReplyTo().cStr()} == "requests/h");
  CHECK(j.getDeadlineMs() == 60'000);
  CHECK(j.getLeaseMs() == 3'000);
  CHECK(j.getTransferToken().size() == 16);
  REQUIRE(j.getChain().size() == 3);
  CHECK(j.getChain()[2] == 3);
  REQUIRE(j.getResume().getChoices().size() == 1);
  CHECK(j.getResume().getChoices()[0].getIds()[0] == 42);
  CHECK(std::string{job->getDecode().getName().cStr()} == "decode/p/b.0");
  CHECK(job->getDecode().getGeneration() == 8);
  CHECK(j.getContent().getInline() == p.words.asPtr().asBytes());

  auto first = make_prefill_job(terms(), p, stream_ledger{1}, way.r.asReader());
  REQUIRE(first);
  CHECK_FALSE(msg::view<msg::PrefillJob> { *first } -> getJob().hasResume());
}

TEST_CASE("long prompts travel in parts that are exactly the prompt") {
  const auto size = GENERATE(std::size_t{400'000}, std::size_t{8} << 20U);
  const auto p = content(size);
  REQUIRE(p.bytes() > size);
  route way;
  auto e = make_decode_job(terms(), p, stream_ledger{3}, true, way.r.asReader());
  REQUIRE(e);
  msg::view<msg::DecodeJob> job{*e};
  CHECK(job->getSource().isSelf());
  CHECK(job->getJob().getContent().getBytes() == p.bytes());
  CHECK(job->getJob().getContent().getInline().size() == 0);

  std::vector<kj::byte> all;
  std::size_t parts = 0;
  while (all.size() < p.bytes()) {
    auto part = make_part(terms().key, p, all.size());
    REQUIRE(part);
    msg::view<msg::PromptPart> in{*part};
    CHECK(msg::read(in->getKey()) == terms().key);
    REQUIRE(in->getOffset() == all.size());
    REQUIRE(in->getBytes().size() > 0);
    REQUIRE(in->getBytes().size() <= part_bytes);
    all.insert(all.end(), in->getBytes().begin(), in->getBytes().end());
    ++parts;
  }
  CHECK(parts == (p.bytes() + part_bytes - 1) / part_bytes);
  CHECK(kj::arrayPtr(all.data(), all.size()) == p.words.asPtr().asBytes());
}

TEST_CASE("a prompt of one part exactly is inline, one word more is not") {
  // Content that is measured rather than guessed: its framing depends on Cap'n Proto.
  const auto overhead = content(0).bytes();
  auto p = content(part_bytes - overhead - 1);
  for (std::size_t n = part_bytes - overhead - 64; p.bytes() != part_bytes && n < part_bytes;
       n += 8)
    p = content(n);
  REQUIRE(p.bytes() == part_bytes);
  route way;
  auto e = make_prefill_job(terms(), p, stream_ledger{1}, way.r.asReader());
  REQUIRE(e);
  CHECK(msg::view<msg::PrefillJob> { *e } -> getJob().getContent().getInline().size() ==
        part_bytes);
}

TEST_CASE("what decode needs is never sent in parts: nobody would send them") {
  route way;
  // 40,000 biases are 320 KB.
  auto e = make_decode_job(terms(), content(100, 40'000), stream_ledger{1}, false,
                           way.r.asReader());
  REQUIRE(e);
  msg::view<msg::DecodeJob> job{*e};
  auto in = job->getJob().getContent();
  CHECK(in.getBytes() > part_bytes);
  CHECK(in.getInline().size() == in.getBytes());

  auto too_large = make_decode_job(terms(), content(100, 140'000), stream_ledger{1}, false,
                                   way.r.asReader());
  REQUIRE_FALSE(too_large);
  CHECK(too_large.error().code == "message_too_large");
}

TEST_CASE("of the longest prompt the beginning of the chain is sent, and every message fits") {
  auto p = std::make_shared<prompt_content>(content(100));
  p->chain.resize((64U << 20U) / 512);
  for (std::size_t i = 0; i < p->chain.size(); ++i) p->chain[i] = i;
  submission s;
  s.prompts = {p};
  auto asked = make_route_request(s, leg{0, 1}, {}, "requests/h", {});
  REQUIRE(asked);
  msg::view<msg::RouteRequest> in{*asked};
  REQUIRE(in->getChain().size() == chain_blocks_sent_max);
  CHECK(in->getChain()[chain_blocks_sent_max - 1] == chain_blocks_sent_max - 1);
  route way;
  // Beside the longest chain there is room for content of one part and a long answer.
  *p = [&] {
    auto larger = content(part_bytes - 2'000);
    larger.chain = p->chain;
    return larger;
  }();
  capnp::MallocMessageBuilder b;
  auto delta = b.initRoot<msg::StreamDelta>();
  auto grow = [&](stream_ledger& done, unsigned tokens) {
    delta.setFirstIndex(done.sampled());
    delta.initIds(tokens);
    REQUIRE(done.take(delta.asReader()) == stream_ledger::verdict::fresh);
  };
  stream_ledger done{1};
  grow(done, 100'000);
  CHECK(make_prefill_job(terms(), *p, done, way.r.asReader()));
  CHECK(make_decode_job(terms(), *p, done, true, way.r.asReader()));

  grow(done, 200'000);
  for (bool self : {true, false}) {
    auto e = make_decode_job(terms(), *p, done, self, way.r.asReader());
    REQUIRE_FALSE(e);
    CHECK(e.error().code == "resume_too_large");
    CHECK_THAT(e.error().message, Catch::Contains("300000 tokens"));
    CHECK(unsendable(e.error()).http_status == 503);
  }
  auto e = make_prefill_job(terms(), *p, done, way.r.asReader());
  REQUIRE_FALSE(e);
  CHECK(e.error().code == "resume_too_large");
  CHECK(unsendable({"message_too_large", ""}).http_status == 413);
}

TEST_CASE("a route request says what a shard decides by") {
  submission s;
  s.model = "m";
  s.choices = 2;
  s.max_tokens = 50;
  s.session = "me";
  auto p = std::make_shared<prompt_content>(content(1'000));
  s.prompts = {p, p};
  leg l{1, 2};
  l.exclude = {"both/p/a.0", "both/p/b.0"};
  l.way.key = 77;
  auto e = make_route_request(s, l, {{1, 2}, 1, 3}, "requests/h", {4, 5});
  REQUIRE(e);
  msg::view<msg::RouteRequest> in{*e};
  CHECK(msg::read(in->getKey()) == job_key{{1, 2}, 1, 3});
  CHECK(in->getPromptBytes() == p->bytes());
  CHECK(in->getChain().size() == 3);
  CHECK(in->getChoices() == 2);
  CHECK(in->getMaxTokens() == 50);
  CHECK(std::string{in->getSession().cStr()} == "me");
  REQUIRE(in->getExclude().size() == 2);
  CHECK(std::string{in->getExclude()[1].cStr()} == "both/p/b.0");
  CHECK(in->getResumedTokens() == 0);
  CHECK(in->getShardKey() == 77);
  CHECK(in->getTerm() == 4);
  CHECK(in->getAssignmentGeneration() == 5);
}

TEST_CASE("a worker that fails a prompt again is the latest that did") {
  leg l{0, 1};
  l.avoid("a");
  l.avoid("b");
  l.avoid("a");
  CHECK(l.exclude == std::vector<std::string>{"b", "a"});
}

TEST_CASE("whose request it is goes to the router and to both workers") {
  submission s;
  s.prompts = {std::make_shared<prompt_content>(content(100))};
  s.tenant = "acme";
  s.session = "one";
  const auto asked = make_route_request(s, leg{0, 1}, {}, "requests/h", {});
  REQUIRE(asked);
  msg::view<msg::RouteRequest> in{*asked};
  CHECK(std::string{in->getWorkload().cStr()} == "acme");
  // Another tenant's session of that name is another.
  CHECK(std::string{in->getSession().cStr()} == "acme/one");
  auto t = terms();
  t.prefix_scope = 99;
  route way;
  const auto prefill = make_prefill_job(t, *s.prompts[0], stream_ledger{1}, way.r.asReader());
  const auto decode = make_decode_job(t, *s.prompts[0], stream_ledger{1}, false, way.r.asReader());
  REQUIRE(prefill);
  REQUIRE(decode);
  CHECK(msg::view<msg::PrefillJob> { *prefill } -> getJob().getPrefixScope() == 99);
  CHECK(msg::view<msg::DecodeJob> { *decode } -> getJob().getPrefixScope() == 99);
}
