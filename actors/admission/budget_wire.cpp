#include "actors/admission/budget_wire.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::admission {

namespace {

double units(double x) { return std::isfinite(x) ? std::max(0.0, x) : 0; }

}  // namespace

void write(msg::HolderWord::Builder out, const holder_word& in) {
  out.setIncarnation(in.incarnation);
  out.setSequence(in.sequence);
  out.setEcho(in.echo);
  out.setHeld(in.held);
  out.setReturned(in.returned);
  out.setNeed(in.need);
  out.setPrefetch(in.prefetch);
  out.setOpen(in.open);
  out.setWantOpen(in.want_open);
  out.setOpenAllowed(in.open_allowed);
}

holder_word read(msg::HolderWord::Reader in) {
  holder_word out;
  out.incarnation = in.getIncarnation();
  out.sequence = in.getSequence();
  out.echo = in.getEcho();
  // Below 0 it is a debt.
  out.held = std::isfinite(in.getHeld()) ? in.getHeld() : 0;
  out.returned = units(in.getReturned());
  out.need = units(in.getNeed());
  out.prefetch = units(in.getPrefetch());
  out.open = in.getOpen();
  out.want_open = in.getWantOpen();
  out.open_allowed = in.getOpenAllowed();
  return out;
}

void write(msg::OwnerWord::Builder out, const owner_word& in) {
  out.setIncarnation(in.incarnation);
  out.setSequence(in.sequence);
  out.setAnswers(in.answers);
  out.setRules(in.rules);
  out.setGrant(in.grant);
  out.setWaitMs(static_cast<std::uint32_t>(in.wait.count()));
  out.setScarce(in.scarce);
  out.setLevel(in.level);
  out.setOpenAllowed(in.open_allowed);
}

owner_word read(msg::OwnerWord::Reader in) {
  owner_word out;
  out.incarnation = in.getIncarnation();
  out.sequence = in.getSequence();
  out.answers = in.getAnswers();
  out.rules = in.getRules();
  out.grant = units(in.getGrant());
  out.wait = milliseconds{in.getWaitMs()};
  out.scarce = in.getScarce();
  // Below 0: others wait for more than there is.
  out.level = std::isfinite(in.getLevel()) ? in.getLevel() : 0;
  out.open_allowed = in.getOpenAllowed();
  return out;
}

}  // namespace troupe::admission
