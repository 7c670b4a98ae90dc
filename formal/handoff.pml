/* The hand-off of a request's KV pages, as docs/handoff.md states it: one decoder, one prefiller,
 * two requests that compete for the same pages and for one slot.
 *
 * The network is the worst there is: a control message that was sent may be received at any later
 * time, any number of times, or never (loss followed by a second sending is a delay); writes land
 * in any order, and each is counted some time after it landed. Timers may fire at any time. The
 * prefiller may die, and may be stopped and continued: that is a process which takes no step for
 * as long as it likes, and all such runs are among those that are searched. A client may cancel at
 * any time.
 *
 * Receiving is possible only where it changes something, so every run ends, and Finale asserts what
 * holds there: a deadlock shows as a request that did not end, a leak as a page that is not free.
 *
 * The fabric breaks at most one promise per hand-off (is_hit). With two it could prove the wrong
 * thing: old bytes that equal the new ones, a repeated immediate, and the real write damaged later.
 *
 * `./x spin` verifies every line that says `verify`, and demands that every line that says `break`
 * fails in the assertion it names: without that measure the protocol is wrong.
 *
 * verify
 * verify SAME_PROMPT EPOCHS=2 FAULTS=2 MORTAL
 * verify NO_FENCE
 * verify NO_FENCE EPOCHS=2 FAULTS=2 MORTAL
 * verify NO_FENCE PATIENT MORTAL
 * verify NO_FENCE EPOCHS=2 FORGETS_LINK
 * break NO_QUARANTINE fails landing_is_held
 * break CONFIRM_BEFORE_DRAIN fails landing_is_held
 * break RELEASE_ON_SILENCE EPOCHS=2 fails landing_is_held
 * break RELEASE_ON_SILENCE NO_FENCE EPOCHS=2 fails landing_is_held
 * break NO_MEMORY_OF_EPOCHS fails landing_is_held
 * break RELEASE_WITH_REQUEST SAME_PROMPT fails landing_is_held
 * break NO_SIDECAR fails data_is_right
 * break NO_EPOCH_IN_IMMEDIATE fails failure_has_a_cause
 * break NO_CLOSING_ON_CANCEL fails request_ends_once
 * break NO_ANSWER_AFTER_FAILURE NO_FENCE fails every_page_is_free
 * break NO_ANSWER_ON_LOST_LINK NO_FENCE FORGETS_LINK fails every_page_is_free
 * break NO_FAILED_MESSAGE NO_FENCE PATIENT MORTAL fails every_request_ended
 * break NO_FAILURE_ON_DRAINED NO_FENCE PATIENT MORTAL fails every_request_ended
 */

#ifndef EPOCHS
#define EPOCHS 3 /* hand-offs in a run: one per request and one more, which is a retry */
#endif
#define PAGES 2
#define REQUESTS 2
#define LINKS 2 /* a link is opened once more after it was fenced */

#define DATA 0
#define SIDECAR 1
#define WRITES 2 /* of a hand-off: all keys and values as one write, and the sidecar */

#define GARBAGE 9

#ifndef FAULTS
#define FAULTS 1
#endif

/* Of a run: a write that fails, lands with other bytes, or is counted twice or never. */
byte faults_left = FAULTS;

/* The decoder's view of a request. */
#define WAITING 0
#define IN_HANDOFF 1
#define RUNNING 2
#define ENDED 3
byte request[REQUESTS];

/* The decoder's view of a hand-off, by its epoch (0 is none). */
#define NONE 0
#define ARMED 1
#define VERIFYING 2
#define CLOSING 3
#define CLOSED 4
byte decoder[EPOCHS + 1];
byte owner[EPOCHS + 1];
byte page[EPOCHS + 1];
byte link[EPOCHS + 1];
byte newest = 0; /* epoch */

/* The slot: its count belongs to one hand-off at a time. */
byte armed = 0;
byte counted = 0;

/* Pages. A hand-off's hold and the engine's hold are different things. */
byte held_by_handoff[PAGES]; /* its epoch */
byte held_by_engine[PAGES];  /* its request + 1 */
byte content[PAGES];
byte sidecar[PAGES]; /* the epoch whose digest it holds, undamaged */

/* The prefiller's view of a hand-off. */
#define SENDING 1
#define FAILED 2
#define STOPPING 3
#define DRAINED 4
byte prefiller[EPOCHS + 1];
byte seen[LINKS + 1]; /* largest epoch that was started or cancelled */
bool is_dead = false;
bool is_lost[LINKS + 1]; /* a link that only the prefiller knows to be lost */

/* Links: numbers from 1. A fenced link's registration is closed for ever. */
byte link_now = 1;
bool is_fenced[LINKS + 1];

/* Writes, by hand-off. */
#define UNSENT 0
#define FLYING 1
#define LANDED 2
#define LOST 3
byte writing[(EPOCHS + 1) * WRITES];
byte uncounted[EPOCHS + 1]; /* immediates of writes that have landed */
bool is_hit[EPOCHS + 1];    /* by a fault that its verification may notice */

/* Control messages that were sent: what was sent once can be received ever after. */
#define START_SENT(e) (decoder[e] != NONE)
#define CANCEL_SENT(e) (decoder[e] >= CLOSING)
bool failed_sent[EPOCHS + 1];
#ifdef CONFIRM_BEFORE_DRAIN
#define DRAINED_SENT(e) (prefiller[e] >= STOPPING)
#else
#define DRAINED_SENT(e) (prefiller[e] == DRAINED)
#endif

/* What the assertions are called. */
bool request_ends_once = true;
bool landing_is_held = true;
bool data_is_right = true;
bool failure_has_a_cause = true;
bool every_request_ended = true;
bool every_page_is_free = true;

#define W(epoch, which) ((epoch) * WRITES + (which))
#define IN_FLIGHT(e) (writing[W(e, DATA)] == FLYING || writing[W(e, SIDECAR)] == FLYING)
#ifdef SAME_PROMPT
#define PROMPT(r) 1
#else
#define PROMPT(r) ((r) + 1)
#endif
#define IS_FREE(p) (held_by_handoff[p] == 0 && held_by_engine[p] == 0)

#define CHECK(name, condition) \
  name = (condition);          \
  assert(name)

/* ---- decoder ---- */

inline end_request(r) {
  CHECK(request_ends_once, request[r] != ENDED);
  request[r] = ENDED
}

/* No write of this hand-off can land any more: the hold ends. */
inline close(e) {
  decoder[e] = CLOSED;
  if
  :: held_by_handoff[page[e]] == e -> held_by_handoff[page[e]] = 0
  :: else
  fi;
  failed_sent[e] = false;
  is_hit[e] = false;
  if
  :: !IN_FLIGHT(e) -> writing[W(e, DATA)] = UNSENT; writing[W(e, SIDECAR)] = UNSENT
  :: else
  fi;
  owner[e] = 0;
  page[e] = 0
}

/* The hand-off is over for the request, admitted or not; its pages may still be written. */
inline start_closing(e) {
  decoder[e] = CLOSING;
  if
  :: armed == e -> armed = 0; counted = 0;
#ifndef NO_EPOCH_IN_IMMEDIATE
     uncounted[e] = 0 /* will be nobody's */
#endif
  :: else
  fi;
#ifdef NO_QUARANTINE
  held_by_handoff[page[e]] = 0;
#endif
}

/* The hand-off failed: `fail`, or `retry` and `recompute` through WAITING. */
inline fail(e) {
  if
  :: end_request(owner[e])
  :: request[owner[e]] = WAITING
  fi;
  start_closing(e)
}

/* Closes the registration: the target refuses what would land later on this link, and nobody
 * listens to what the prefiller still says there, so that it has no more part in the search. What
 * is counted in full goes on: the proof decides. */
inline fence(l) {
  is_fenced[l] = true;
  seen[l] = EPOCHS;
  epoch = 1;
  do
  :: epoch > newest -> break
  :: epoch <= newest ->
     if
     :: link[epoch] == l && decoder[epoch] == ARMED -> fail(epoch)
     :: else
     fi;
     if
     :: link[epoch] == l ->
        if
        :: writing[W(epoch, DATA)] == FLYING -> writing[W(epoch, DATA)] = LOST
        :: else
        fi;
        if
        :: writing[W(epoch, SIDECAR)] == FLYING -> writing[W(epoch, SIDECAR)] = LOST
        :: else
        fi;
        prefiller[epoch] = DRAINED;
        if
        :: decoder[epoch] == CLOSING -> close(epoch)
        :: else
        fi
     :: else
     fi;
     epoch++
  od;
  epoch = 0
}

inline take_free_page(p) {
  if
  :: IS_FREE(0) -> p = 0
  :: else -> p = 1 /* alike */
  fi
}

active proctype Decoder() {
  byte r = 0;
  byte e = 0;
  byte p = 0;
  byte epoch = 0;
end:
  do
  /* A request starts its hand-off: pages, then the count, then the message. */
  :: atomic {
       newest < EPOCHS && armed == 0 && !is_fenced[link_now] && (IS_FREE(0) || IS_FREE(1)) &&
       (request[0] == WAITING || request[1] == WAITING) ->
       if
       :: request[0] == WAITING -> r = 0
       :: request[1] == WAITING && (newest > 0 || request[0] != WAITING) -> r = 1 /* else alike */
       fi;
       take_free_page(p);
       newest++;
       request[r] = IN_HANDOFF;
       owner[newest] = r;
       page[newest] = p;
       link[newest] = link_now;
       held_by_handoff[p] = newest;
       sidecar[p] = 0; /* what is there has another epoch, so it proves nothing */
       armed = newest;
       counted = 0;
       decoder[newest] = ARMED;
       r = 0; p = 0
     }

  /* It computes the prompt itself, into pages that nobody else writes. */
  :: atomic {
       (newest == EPOCHS || is_fenced[link_now]) && (IS_FREE(0) || IS_FREE(1)) &&
       (request[0] == WAITING || request[1] == WAITING) ->
       if
       :: request[0] == WAITING -> r = 0
       :: request[1] == WAITING -> r = 1
       fi;
       take_free_page(p);
       content[p] = PROMPT(r);
       held_by_engine[p] = r + 1;
       request[r] = RUNNING;
       r = 0; p = 0
     }

  /* The count wakes. */
  :: atomic { armed != 0 && counted >= WRITES && decoder[armed] == ARMED ->
       decoder[armed] = VERIFYING }

  /* The sidecar proves. */
  :: atomic {
       armed != 0 && decoder[armed] == VERIFYING ->
       e = armed;
       r = owner[e];
       p = page[e];
       if
#ifdef NO_SIDECAR
       :: true ->
#else
       :: sidecar[p] == e && content[p] == PROMPT(r) -> /* its digest is the data's */
#endif
          CHECK(data_is_right, content[p] == PROMPT(r));
          held_by_engine[p] = r + 1;
          request[r] = RUNNING;
          start_closing(e)
       :: else ->
          CHECK(failure_has_a_cause, is_hit[e]);
          fail(e)
       fi;
       r = 0; e = 0; p = 0
     }

  /* The engine has run the request to its end, or the client cancels it: at any time. */
  :: atomic {
       request[0] == RUNNING || request[1] == RUNNING ->
       if
       :: request[0] == RUNNING -> r = 0
       :: request[1] == RUNNING -> r = 1
       fi;
       p = (held_by_engine[0] == r + 1 -> 0 : 1);
       CHECK(data_is_right, content[p] == PROMPT(r));
       end_request(r);
       held_by_engine[p] = 0;
#ifdef RELEASE_WITH_REQUEST
       held_by_handoff[p] = 0;
#endif
       r = 0; p = 0
     }
  :: atomic {
       request[0] == WAITING || request[1] == WAITING ->
       if
       :: request[0] == WAITING -> end_request(0)
       :: request[1] == WAITING -> end_request(1)
       fi
     }
#ifndef PATIENT
  :: atomic {
       armed != 0 -> /* in hand-off, with its count or while it is verified */
       e = armed;
       end_request(owner[e]);
#ifndef NO_CLOSING_ON_CANCEL
       start_closing(e);
#endif
       e = 0
     }

  /* The deadline, or a peer that is silent. */
  :: atomic { armed != 0 && decoder[armed] == ARMED -> e = armed; fail(e); e = 0 }
#endif

  /* Messages. */
#ifndef NO_FAILED_MESSAGE
  :: atomic {
       armed != 0 && decoder[armed] == ARMED && failed_sent[armed] -> e = armed; fail(e); e = 0
     }
#endif
#ifndef NO_FAILURE_ON_DRAINED
  /* Everything was delivered, and the count stays short. */
  :: atomic {
       armed != 0 && decoder[armed] == ARMED && DRAINED_SENT(armed) && counted < WRITES &&
       uncounted[armed] == 0 ->
       e = armed; fail(e); e = 0
     }
#endif
  :: atomic { decoder[1] == CLOSING && DRAINED_SENT(1) -> close(1) }
#if EPOCHS > 1
  :: atomic { decoder[2] == CLOSING && DRAINED_SENT(2) -> close(2) }
#endif
#if EPOCHS > 2
  :: atomic { decoder[3] == CLOSING && DRAINED_SENT(3) -> close(3) }
#endif

#ifdef RELEASE_ON_SILENCE
  :: atomic { decoder[1] == CLOSING -> close(1) }
#endif

#ifdef NO_FENCE
  /* The writes are the process's own copies: they end with it. */
  :: atomic { is_dead && !is_fenced[link_now] -> fence(link_now) }
#else
  /* A peer that is silent or does not confirm in time. */
  :: atomic { !is_fenced[link_now] && newest > 0 -> fence(link_now) }
  /* A new handshake makes a new registration. */
  :: atomic { is_fenced[link_now] && link_now < LINKS && !is_dead -> link_now++ }
#endif
  od
}

/* ---- prefiller ---- */

#define ALL_DELIVERED(e) \
  (writing[W(e, DATA)] == LANDED && writing[W(e, SIDECAR)] == LANDED)

/* A layer's keys and values leave as soon as they are computed. */
inline submit(e, which) {
  atomic { !is_dead && prefiller[e] == SENDING && writing[W(e, which)] == UNSENT ->
    writing[W(e, which)] = FLYING }
}

active [EPOCHS] proctype Prefiller() {
  byte e = _pid; /* the Decoder is 0 */
end:
  do
  :: atomic {
#ifdef NO_MEMORY_OF_EPOCHS
       !is_dead && START_SENT(e) && prefiller[e] != SENDING && prefiller[e] != STOPPING &&
       prefiller[e] != FAILED && writing[W(e, DATA)] == UNSENT ->
#else
       !is_dead && START_SENT(e) && e > seen[link[e]] && !is_lost[link[e]] ->
       seen[link[e]] = e;
#endif
       prefiller[e] = SENDING
     }
  :: atomic { /* too late to start */
       !is_dead && START_SENT(e) && prefiller[e] == NONE && e <= seen[link[e]] &&
       !is_lost[link[e]] ->
       prefiller[e] = DRAINED
     }
  :: submit(e, DATA)
  :: submit(e, SIDECAR)
  :: atomic {
       !is_dead && prefiller[e] == SENDING &&
       (writing[W(e, DATA)] == LOST || writing[W(e, SIDECAR)] == LOST) ->
       prefiller[e] = FAILED; failed_sent[e] = (decoder[e] == ARMED)
     }
  :: atomic { !is_dead && prefiller[e] == SENDING && ALL_DELIVERED(e) ->
       prefiller[e] = DRAINED }
  :: atomic { /* cancelled before it was started */
#ifdef NO_ANSWER_ON_LOST_LINK
       !is_dead && CANCEL_SENT(e) && prefiller[e] == NONE && !is_lost[link[e]] ->
#else
       !is_dead && CANCEL_SENT(e) && prefiller[e] == NONE ->
#endif
#ifndef NO_MEMORY_OF_EPOCHS
       if
       :: e > seen[link[e]] -> seen[link[e]] = e
       :: else
       fi;
#endif
       prefiller[e] = DRAINED
     }
  :: atomic {
#ifdef NO_ANSWER_AFTER_FAILURE
       !is_dead && CANCEL_SENT(e) && prefiller[e] == SENDING ->
#else
       !is_dead && CANCEL_SENT(e) && (prefiller[e] == SENDING || prefiller[e] == FAILED) ->
#endif
       prefiller[e] = STOPPING
     }
  :: atomic { !is_dead && prefiller[e] == STOPPING && !IN_FLIGHT(e) ->
       prefiller[e] = DRAINED }
#ifdef FORGETS_LINK
  :: atomic { !is_dead && !is_lost[link[e]] && link[e] != 0 -> is_lost[link[e]] = true }
  :: atomic {
       !is_dead && is_lost[link[e]] && (prefiller[e] == SENDING || prefiller[e] == FAILED) ->
       prefiller[e] = STOPPING
     }
#endif
  od
}

/* ---- network ---- */

inline count(e) {
  uncounted[e]--;
  if
#ifdef NO_EPOCH_IN_IMMEDIATE
  :: armed != 0 && counted < WRITES ->
#else
  :: armed == e && counted < WRITES ->
#endif
     counted++
  :: else /* nobody waits for it: a metric */
  fi
}

inline land(e, which, value) {
  writing[W(e, which)] = LANDED;
  CHECK(landing_is_held, held_by_handoff[page[e]] == e);
  if
  :: which == DATA -> content[page[e]] = value
  :: else -> sidecar[page[e]] = (value == GARBAGE -> 0 : e)
  fi;
#ifndef NO_EPOCH_IN_IMMEDIATE
  if
  :: armed == e -> uncounted[e]++
  :: else /* will be nobody's */
  fi
#else
  uncounted[e]++
#endif
}

inline carry(e, which) {
  if
  :: atomic { writing[W(e, which)] == FLYING -> land(e, which, PROMPT(owner[e])) }
  :: atomic { writing[W(e, which)] == FLYING && faults_left > 0 && !is_hit[e] ->
       faults_left--; is_hit[e] = true; land(e, which, GARBAGE) }
  :: atomic { writing[W(e, which)] == FLYING && faults_left > 0 && !is_hit[e] ->
       faults_left--; is_hit[e] = true; land(e, which, PROMPT(owner[e]));
       if
       :: uncounted[e] > 0 -> uncounted[e]++
       :: else
       fi }
  :: atomic { writing[W(e, which)] == FLYING && faults_left > 0 ->
       faults_left--; writing[W(e, which)] = LOST }
  :: atomic { writing[W(e, which)] == FLYING && faults_left > 0 && !is_hit[e] ->
       faults_left--; is_hit[e] = true; land(e, which, PROMPT(owner[e]));
       if
       :: uncounted[e] > 0 -> uncounted[e]--
       :: else
       fi }
  fi
}

active [EPOCHS] proctype Network() {
  byte e = _pid - EPOCHS;
end:
  do
  :: carry(e, DATA)
  :: carry(e, SIDECAR)
  :: atomic { uncounted[e] > 0 -> count(e) }
  od
}

/* ---- the prefiller's process ---- */

#ifdef MORTAL
active proctype Process() {
  byte i = 0;
  if
  :: atomic {
       true ->
       is_dead = true;
#ifdef NO_FENCE
       do
       :: i == (EPOCHS + 1) * WRITES -> break
       :: i < (EPOCHS + 1) * WRITES ->
          if
          :: writing[i] == FLYING -> writing[i] = LOST
          :: else
          fi;
          i++
       od;
       i = 0
#endif
     }
  :: true /* it lives for ever */
  fi
}
#endif

/* Nothing can happen any more. */
active proctype Finale() {
  atomic {
    timeout ->
    CHECK(every_request_ended, request[0] == ENDED && request[1] == ENDED);
    CHECK(every_page_is_free, IS_FREE(0) && IS_FREE(1))
  }
}
