#include "actors/console/session.hpp"

#include "actors/console/frames.hpp"
#include "actors/console/inspector.hpp"
#include "actors/drain/drain_actor.hpp"
#include "actors/link/guarded.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace troupe::console {

namespace {

using late_atom = caf::atom_constant<caf::atom("conlate")>;
using again_atom = caf::atom_constant<caf::atom("conagain")>;
using progress_atom = caf::atom_constant<caf::atom("conprogr")>;

drain::target read_target(msg::ConsoleOrder::Reader in) {
  using kind = drain::target::kind;
  switch (in.getKind()) {
  case msg::ConsoleOrder::TargetKind::POOL:
    return {kind::pool, in.getTarget().cStr()};
  case msg::ConsoleOrder::TargetKind::HOST:
    return {kind::host, in.getTarget().cStr()};
  default:
    return {kind::engine, in.getTarget().cStr()};
  }
}

const char* name_of(const drain::engine_progress& e) {
  if (!e.answered) return e.ordered ? "ordered" : "waiting";
  switch (e.phase) {
  case msg::DrainPhase::REFUSED:
    return "refused";
  case msg::DrainPhase::DRAINING:
    return "draining";
  case msg::DrainPhase::DRAINED:
    return "drained";
  case msg::DrainPhase::STOPPED:
    return "stopped";
  case msg::DrainPhase::RESTARTING:
    return "restarting";
  case msg::DrainPhase::SERVING:
    break;
  }
  return "serving";
}

struct session_state {
  caf::event_based_actor* self;
  session_options options;
  std::deque<msg::frozen_message> ahead;
  bool busy = false;
  std::uint32_t id = 0;                        ///< of the terminal's request
  std::uint64_t query = 0;                     ///< ours; answers to others are too late
  msg::envelope<msg::NodeQuery> question;      ///< what `query` asks
  std::map<std::string, std::string> waiting;  ///< hosts that have not answered, and why so far
  caf::actor drainer;                          ///< who carries our order out; null: there is none
  std::vector<drain::engine_progress> progress;
  static constexpr const char* name = "console";

  explicit session_state(caf::event_based_actor* s) : self(s) {}
  ~session_state() {
    if (!options.office) return;
    options.office->unbind(options.name, options.generation);
    caf::anon_send(options.directory, directory::remove_entry{options.name, options.generation});
  }

  void begin_session() {
    options.office->bind(options.name, options.generation, caf::actor_cast<caf::actor>(self));
    directory::entry e;
    e.name = options.name;
    e.generation = options.generation;
    e.role = msg::Role::CONSOLE;
    e.state = msg::EntryState::READY;
    self->send(options.directory, directory::set_entry{std::move(e)});
  }

  template <class Fill>
  void reply(Fill fill) {
    msg::draft<msg::ConsoleReply> d;
    d->setId(id);
    fill(*d);
    auto e = std::move(d).freeze();
    if (e) return self->send(options.port, to_terminal{std::move(e->body)});
    spdlog::error("event=console_reply_lost session={} reason=\"{}\"", options.name,
                  e.error().message);
  }
  void fail(const char* code, const std::string& message) {
    reply([&](msg::ConsoleReply::Builder out) {
      auto f = out.initFailure();
      f.setCode(code);
      f.setMessage(message);
    });
    next();
  }

  void heard(const from_terminal& x) {
    if (ahead.size() >= requests_ahead_max)
      return self->quit(caf::make_error(caf::exit_reason::user_shutdown));
    ahead.push_back(x.what);
    if (!busy) next();
  }

  void next() {
    busy = false;
    if (ahead.empty()) return;
    busy = true;
    const msg::envelope<msg::ConsoleRequest> e{std::move(ahead.front())};
    ahead.pop_front();
    try {
      msg::view<msg::ConsoleRequest> in{e};
      serve(*in);
    } catch (const kj::Exception& why) {
      link::note_malformed("ConsoleRequest", {{options.name, 0}, {options.name, 0}}, why);
      self->quit(caf::make_error(caf::exit_reason::user_shutdown));
    }
  }

  void serve(msg::ConsoleRequest::Reader in) {
    id = in.getId();
    if (in.getProtocol() != protocol)
      return fail("other_protocol", "this node speaks version " + std::to_string(protocol) +
                                        " of the console's protocol, the terminal speaks " +
                                        std::to_string(in.getProtocol()));
    if (const bool orders = !in.getOrder().isNone(); orders || in.getQuery().isReload()) {
      if (options.as != trust::role::operator_) {
        spdlog::warn("event=console_order_refused session={} person={} role={}", options.name,
                     options.person, trust::to_string(options.as));
        return fail("not_allowed", "'" + options.person + "' is a " +
                                       std::string{trust::to_string(options.as)} +
                                       " here: orders need the role operator");
      }
      if (orders) return give_order(in.getOrder());
    }
    std::vector<std::string> hosts;
    for (auto host : in.getHosts()) hosts.emplace_back(host.cStr());
    for (const auto& host : hosts)
      if (std::find(options.hosts.begin(), options.hosts.end(), host) == options.hosts.end())
        return fail("no_such_host", "the cluster file of this node has no host '" + host + "'");
    if (hosts.empty()) hosts = options.hosts;
    ++query;
    auto builder = std::make_unique<capnp::MallocMessageBuilder>();
    builder->setRoot(in.getQuery());
    builder->getRoot<msg::NodeQuery>().setId(query);
    auto frozen = msg::frozen_message::freeze(std::move(builder));
    if (!frozen) return fail("query_too_large", frozen.error().message);
    question = msg::envelope<msg::NodeQuery>{*std::move(frozen)};
    waiting.clear();
    for (auto& host : hosts) waiting.emplace(std::move(host), "");
    ask_who_waits(query);
    self->delayed_send(self, answer_timeout, late_atom::value, query);
    finish_unless_awaited();
  }

  void ask_who_waits(std::uint64_t q) {
    if (!busy || q != query || waiting.empty()) return;
    const auto all = options.view->get();
    for (auto& [host, why] : waiting) {
      const auto whom = inspector_name(host);
      why = all->contains(whom) ? "does not answer" : "there is no link to it";
      if (all->contains(whom))
        options.office->send({whom, 0}, {options.name, options.generation}, question);
    }
    self->delayed_send(self, ask_again_interval, again_atom::value, q);
  }

  void give_order(msg::ConsoleOrder::Reader in) {
    drainer = options.drain ? options.drain() : caf::actor{};
    if (!drainer) return fail("not_now", "this node takes no orders now");
    drain::drain_order o;
    o.id = ++query;
    o.at = read_target(in);
    o.at_once = in.getAtOnce();
    o.reply_to = caf::actor_cast<caf::actor>(self);
    o.undrain = in.isUndrain();
    if (in.isDrain()) {
      o.within = std::chrono::milliseconds{in.getDrain().getWithinMs()};
      o.move_after = std::chrono::milliseconds{in.getDrain().getMoveAfterMs()};
      o.then = in.getDrain().getThen();
    }
    spdlog::info("event=console_order session={} target={} undrain={}", options.name, o.at.name,
                 o.undrain);
    progress.clear();
    self->monitor(drainer);
    self->send(drainer, o);
    self->delayed_send(self, progress_interval, progress_atom::value, query);
  }

  void went_on(const drain::drain_progress& x) {
    if (!drainer || x.id != query) return;
    if (!x.refused.empty()) {
      leave_order();
      return fail("refused", x.refused);
    }
    progress = x.engines;
    tell_progress();
    if (!x.over) return;
    leave_order();
    waiting.clear();
    finish();
  }
  void tell_again(std::uint64_t q) {
    if (!drainer || q != query) return;
    tell_progress();
    self->delayed_send(self, progress_interval, progress_atom::value, query);
  }
  void tell_progress() {
    reply([&](msg::ConsoleReply::Builder out) {
      auto list = out.initProgress(static_cast<unsigned>(progress.size()));
      for (unsigned i = 0; i < list.size(); ++i) {
        const auto& e = progress[i];
        list[i].setEngine(e.engine);
        list[i].setPhase(name_of(e));
        list[i].setJobsLeft(e.jobs_left);
        list[i].setOver(e.over);
        list[i].setFailure(e.failure);
      }
    });
  }
  void leave_order() {
    self->demonitor(drainer.address());
    drainer = nullptr;
  }

  void down(const caf::down_msg& d) {
    if (!drainer || d.source != drainer.address())
      return self->quit(caf::make_error(caf::exit_reason::user_shutdown));
    drainer = nullptr;
    fail("order_unwatched",
         "the node's drain actor has ended: what its launchers were told is carried out, the rest "
         "is not");
  }

  void reported(msg::NodeReport::Reader in) {
    const std::string host = in.getHost().cStr();
    if (in.getId() != query || waiting.erase(host) == 0) return;
    reply([&](msg::ConsoleReply::Builder out) { out.setReport(in); });
    finish_unless_awaited();
  }

  void late(std::uint64_t q) {
    if (busy && q == query) finish();
  }

  void finish_unless_awaited() {
    if (std::none_of(waiting.begin(), waiting.end(),
                     [](const auto& x) { return x.second == "does not answer"; }))
      finish();
  }
  void finish() {
    ++query;  // what still comes is too late
    reply([&](msg::ConsoleReply::Builder out) {
      auto list = out.initEnd(static_cast<unsigned>(waiting.size()));
      unsigned i = 0;
      for (const auto& [host, why] : waiting) {
        list[i].setHost(host);
        list[i].setReason(why);
        ++i;
      }
    });
    next();
  }
};

caf::behavior behavior(caf::stateful_actor<session_state>* self, session_options options) {
  auto& s = self->state;
  s.options = std::move(options);
  s.begin_session();
  self->monitor(s.options.port);
  self->set_down_handler([&s](caf::down_msg& d) { s.down(d); });
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);
  return {
      [&s](const from_terminal& x) { s.heard(x); },
      link::on<msg::NodeReport>([&s](msg::NodeReport::Reader in) { s.reported(in); }),
      [&s](late_atom, std::uint64_t query) { s.late(query); },
      [&s](again_atom, std::uint64_t query) { s.ask_who_waits(query); },
      [&s](const drain::drain_progress& x) { s.went_on(x); },
      [&s](progress_atom, std::uint64_t query) { s.tell_again(query); },
      supervision::answers_for_itself(self),
  };
}

}  // namespace

caf::actor spawn_session(caf::event_based_actor* listener, session_options options) {
  return listener->spawn<caf::monitored>(behavior, std::move(options));
}

}  // namespace troupe::console
