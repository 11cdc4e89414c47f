#pragma once

#include "actors/request/holdings.hpp"
#include "actors/request/poison_policy.hpp"
#include "actors/request/request_actor.hpp"
#include "actors/request/shard_way.hpp"
#include "actors/request/stream_ledger.hpp"
#include "gpu/engine/engine.hpp"
#include "messages/route.capnp.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::request {

/// Token batches may overtake `Accepted`, by a shorter way or by a step's first token; so many wait
/// for it. One more breaks the attempt.
inline constexpr std::size_t early_slices_max = 256;

/// Blocks of a prompt's chain that are sent: the beginning, of 8 MiB. Longer prompts are told apart
/// by what is after it, but a beginning that is the same is found all the same; and the messages
/// that carry a chain have a cap.
inline constexpr std::size_t chain_blocks_sent_max = 16'384;

/// A running stream is to go on elsewhere, since its worker drains: from the question for a place
/// until the worker has let it go. The attempt goes on meanwhile, whatever becomes of this.
struct pending_move {
  std::uint32_t attempt = 0;          ///< that will go on with the stream
  std::shared_ptr<held_route> route;  ///< null: the router owes an answer
  std::optional<msg::envelope<msg::Route>> place;
  std::unique_ptr<held_job> source;  ///< at the worker that it leaves, as a part of that attempt
  std::vector<std::uint8_t> token;
};

/// One prompt of a request on its way: the attempt that is running now, what it holds, and what the
/// client has of it.
struct leg {
  leg(std::uint16_t p, std::uint16_t choices) : prompt(p), ledger(choices) {}

  std::uint16_t prompt;
  shard_way way;
  /// The first of the answers without another between them that all engines were given up.
  std::optional<std::chrono::steady_clock::time_point> hopeless_since;
  std::uint32_t shards_tried = 0;  ///< that did not answer, since the last one that did
  std::string asked;               ///< the shard that owes the running attempt's route, or gave it
  /// Shards that know nobody, or nobody else, since one last gave a route to somebody else.
  std::vector<std::string> refused;
  std::uint32_t attempt = 1;       ///< running, or about to
  std::uint32_t move_attempt = 0;  ///< the latest that a place was asked for; 0: none
  std::uint32_t failed = 0;        ///< attempts that have, so far
  suspicion suspected;
  std::uint32_t last_alone = 0;  ///< the last attempt that was to run alone; 0: none
  bool pausing = false;          ///< the attempt has not begun
  bool waited = false;           ///< the last one only waited: the next is told of in its place
  stream_ledger ledger;
  bool accepted = false;  ///< the client has been told
  bool finished = false;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t cached_attempt = 1;  ///< which found them
  std::vector<std::string> exclude;  ///< workers that failed this prompt, the latest last
  std::size_t record = 0;            ///< of the running attempt, in the timeline
  std::size_t records = 0;           ///< of this prompt

  // What the running attempt holds; cleared as a whole.
  std::shared_ptr<held_route> route;
  std::unique_ptr<held_job> prefill;
  std::unique_ptr<held_job> decode;
  std::optional<pending_move> move;
  /// Parts of a long prompt: sent so far, and acknowledged by the worker that renders it.
  std::size_t sent_bytes = 0;
  msg::address reader;
  std::vector<batch_slice> early;          ///< came before the prompt was accepted
  std::uint32_t came_tokens = 0;           ///< in this attempt
  std::vector<std::uint32_t> came_before;  ///< of each choice; empty: nothing, it is the first
  bool moved_here = false;  ///< its KV came with the stream: nothing was computed again

  bool alone() const { return last_alone == attempt; }
  /// To the shard of the running attempt.
  shard_way way_now(const std::string& model) const {
    return alone() ? quarantine_way(model) : way;
  }
  /// What a repetition is called. A number that was asked about for a move is used up: the answer
  /// may still come, and must not be taken for that to another question.
  std::uint32_t next_attempt() const { return 1 + std::max(attempt, move_attempt); }
  /// What the stream's next place would be called; the same however often it is asked for.
  std::uint32_t next_move() const { return std::max(attempt + 1, move_attempt); }
  /// So many tokens on, this attempt is past where the one before may have crashed its engine.
  std::uint32_t survival_tokens(std::uint16_t choices) const {
    return engine::alone_passes * choices;
  }

  void drop_attempt() {
    prefill.reset();
    decode.reset();
    move.reset();
    route.reset();
    sent_bytes = 0;
    reader = {};
    early.clear();
    came_tokens = 0;
    came_before.clear();
    for (const auto& c : ledger.lengths()) came_before.push_back(c.tokens);
    moved_here = false;
  }
  bool avoids(const std::string& worker) const {
    return std::find(exclude.begin(), exclude.end(), worker) != exclude.end();
  }
  void avoid(const std::string& worker) {
    std::erase(exclude, worker);
    exclude.push_back(worker);
  }
  /// A job is open at an incarnation of this worker other than `alive`.
  bool uses(const std::string& worker, std::uint64_t alive) const {
    auto at = [&](const std::unique_ptr<held_job>& j) {
      return j && j->open() && j->worker().name == worker && j->worker().generation != alive;
    };
    return at(prefill) || at(decode);
  }
};

// -- messages of an attempt; pure but for the bytes of the prompt --------------------

struct job_terms {
  job_key key;
  std::string reply_to;
  std::chrono::milliseconds deadline;
  std::chrono::milliseconds lease;
  std::vector<std::uint8_t> token;
  bool alone = false;  ///< under suspicion: in steps of its own
  std::uint64_t prefix_scope = 0;
};

/// The request without its prompt: what a decode worker needs when the prompt arrives with the KV.
kj::Array<capnp::word> without_prompt(const prompt_content& content);

// What does not fit into a message: `message_too_large`; with something done already, and thus by
// what an earlier attempt has sampled, `resume_too_large`.

expected<msg::envelope<msg::RouteRequest>> make_route_request(const submission& s, const leg& l,
                                                              const job_key& key,
                                                              const std::string& reply_to,
                                                              const control::assignment_number& by,
                                                              const std::string& move_from = {});
/// To the worker that a stream leaves.
msg::envelope<msg::MoveJob> make_move_job(const job_key& key, const pending_move& move,
                                          msg::WorkerRef::Reader decode);
expected<msg::envelope<msg::PrefillJob>> make_prefill_job(const job_terms& t,
                                                          const prompt_content& content,
                                                          const stream_ledger& done,
                                                          msg::Route::Reader route);
/// `self_prefill`: the decode worker renders and computes the prompt itself.
expected<msg::envelope<msg::DecodeJob>> make_decode_job(const job_terms& t,
                                                        const prompt_content& content,
                                                        const stream_ledger& done,
                                                        bool self_prefill,
                                                        msg::Route::Reader route);
expected<msg::envelope<msg::PromptPart>> make_part(const job_key& key,
                                                   const prompt_content& content,
                                                   std::size_t offset);

// -- words of the wire in terms of this folder -----------------------------------------

/// 16 random bytes; empty when there is no randomness (workers refuse that).
std::vector<std::uint8_t> one_time_token();
const char* name_of(msg::TransferPlan p);
failure read(msg::Failure::Reader f);
/// Of a message that could not be made.
failure unsendable(const error& why);
void fill(attempt_record& r, msg::PrefillDone::Reader in);

}  // namespace troupe::request
