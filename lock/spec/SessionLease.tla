---------------------------- MODULE SessionLease ----------------------------
(* The session lease of docs/safety.md: what the client may conclude from its    *)
(* acknowledged writes about the moment at which the leader ends its session.    *)
(*                                                                               *)
(* Time is a count of ticks of this model, and no moment is kept: a time is the   *)
(* age of an event or what is left until one, and stops counting where it stops   *)
(* mattering. So neither the length of a run nor the number of writes is bounded. *)
(* All that happens within one tick happens in any order.                         *)
(*                                                                               *)
(* No step has to be taken. So every process and every thread may be paused at    *)
(* any moment, for any time, and every message may be late or lost. What the      *)
(* argument takes for granted is a guard of Check and Commit, and nowhere else.   *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Contenders,       \* 1..n, in the order of the queue
  SessionTimeout,   \* T, on the leader's clock
  HalfTick,         \* the leader pings its followers that often
  Slack,
  StatedTimeout,    \* T on the client's clock, in ticks of the leader's
  StatedHalfTick,   \* what the client takes for half a tick
  Proofs,           \* what the client uses: "renewals", "attach"
  Places,           \* where it may attach: "leader", "follower"
  Elections,        \* whether a leader may be deposed
  Without           \* rules and assumptions that are left out, see the README

Rule(name) == name \notin Without
Never == -1
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

(* What has to lie between the acknowledgement of one renewal and the sending of  *)
(* the next one. The last of them proves the first.                               *)
Gaps == <<StatedHalfTick + Slack, Slack, 0>>
(* Weaker rules, each put in the place of Gaps.                                   *)
OneStep == <<>>
TwoSteps == <<StatedHalfTick + Slack>>
ThreeSteps == <<StatedHalfTick + Slack, 0>>
NoLastRenewal == <<StatedHalfTick + Slack, Slack>>
NoHalfTick == <<Slack, Slack, 0>>
NoSlackBeforeWitness == <<StatedHalfTick + Slack, 0, 0>>
NoFirstSlack == <<StatedHalfTick, Slack, 0>>

LongestGap == StatedHalfTick + Slack

VARIABLES
  (* the leader *)
  pinged,     \* how long ago it pinged its followers
  left,       \* left[c]: of c's session, until the leader may take it out of its queue
  session,    \* "live"; "taken" out of the queue; "ended": marked as closing
  awake,      \* how long ago the leader first committed a write of c while a ping was due
  taken,      \* how long ago it first committed a write of c after c's session was taken
  (* the connection of c to a server *)
  place,      \* "leader", "follower", or "deposed": behind a leader without its quorum
  request,    \* the one outstanding request: "none", "sent", "fetched" or "torn" (see Receive),
              \*   "noted", "link": in up or down, "checked" by the leader, "answered"
  table,      \* whether c is in the follower's table of touches
  up, down,   \* what is on its way to the leader and from it, in order
  (* the client *)
  proof,      \* "none", "renewals", "attach", "lapsed": counted, and not confirmed
  done,       \* how many requests of the proof are acknowledged
  from,       \* how long ago the renewal that counts, or the request to attach, was sent
  since,      \* how long ago the last of them was acknowledged
  lease,      \* what is left of the lease; before the first one, of the session's creation
  begun       \* whether there was a first lease

leader == <<pinged, left, session, awake, taken>>
link == <<place, table, up, down>>
client == <<proof, done, from, since, lease, begun>>
vars == <<leader, link, request, client>>

(******************************** what must not be *******************************)
Believes(c) == begun[c] /\ lease[c] > 0
Holds(c) == Believes(c) /\ \A d \in Contenders : d < c => session[d] = "ended"

NobodyOutlivesTheSession == \A c \in Contenders : session[c] = "ended" => ~Believes(c)
NeverTwoHolders == Cardinality({c \in Contenders : Holds(c)}) <= 1

Typed ==
  /\ pinged \in 0..HalfTick
  /\ \A c \in Contenders :
       /\ left[c] \in 0..SessionTimeout
       /\ session[c] \in {"live", "taken", "ended"}
       /\ awake[c] \in Never..Slack /\ taken[c] \in Never..Slack
       /\ place[c] \in {"leader", "follower", "deposed"}
       /\ request[c] \in {"none", "sent", "fetched", "torn", "noted", "link", "checked", "answered"}
       /\ table[c] \in BOOLEAN /\ begun[c] \in BOOLEAN
       /\ Len(up[c]) <= 3 /\ Len(down[c]) <= 3
       /\ \A i \in 1..Len(up[c]) : up[c][i] \in {"request", "touches"}
       /\ \A i \in 1..Len(down[c]) : down[c][i] \in {"request", "ping"}
       /\ proof[c] \in {"none", "renewals", "attach", "lapsed"}
       /\ done[c] \in 0..3
       /\ from[c] \in 0..StatedTimeout /\ since[c] \in 0..LongestGap
       /\ lease[c] \in 0..StatedTimeout

(* What a configuration has to reach, or it would show nothing.                   *)
ASSUME \A i \in 1..7 : TLCSet(i, FALSE)
Seen(i, what, condition) ==
  IF TLCGet(i) \/ ~condition THEN TRUE ELSE TLCSet(i, TRUE) /\ PrintT("reached: " \o what)
Answered(c, p, d) == request[c] = "answered" /\ proof[c] = p /\ done[c] = d
Extends(c) == Believes(c) /\ StatedTimeout - from[c] > lease[c]
Reached ==
  /\ Seen(1, "the session ends", \E c \in Contenders : session[c] = "ended")
  /\ Seen(2, "renewals extend", \E c \in Contenders : Answered(c, "renewals", Len(Gaps)) /\ Extends(c))
  /\ Seen(3, "attaching extends", \E c \in Contenders : Answered(c, "attach", 1) /\ Extends(c))
  /\ Seen(4, "a lapsed lease is good again", \E c \in Contenders :
            request[c] = "answered" /\ proof[c] = "lapsed" /\ from[c] < StatedTimeout)
  /\ Seen(5, "a lapsed lease stays over", \E c \in Contenders :
            session[c] = "ended" /\ proof[c] = "lapsed" /\ from[c] < StatedTimeout)
  /\ Seen(6, "a deposed leader confirms", \E c \in Contenders :
            session[c] = "ended" /\ place[c] = "deposed" /\ proof[c] = "attach" /\ done[c] = 1)
  /\ Seen(7, "two hold in turn", \E c \in Contenders : c > 1 /\ Holds(c))

(* A session was just created; the contender is not yet.                          *)
Init ==
  /\ pinged \in 0..HalfTick
  /\ left = [c \in Contenders |-> SessionTimeout]
  /\ session = [c \in Contenders |-> "live"]
  /\ awake = [c \in Contenders |-> Never] /\ taken = [c \in Contenders |-> Never]
  /\ place \in [Contenders -> Places]
  /\ request = [c \in Contenders |-> "none"] /\ table = [c \in Contenders |-> FALSE]
  /\ up = [c \in Contenders |-> <<>>] /\ down = [c \in Contenders |-> <<>>]
  /\ proof = [c \in Contenders |-> "attach"] /\ done = [c \in Contenders |-> 1]
  /\ from = [c \in Contenders |-> 0] /\ since = [c \in Contenders |-> 0]
  /\ lease = [c \in Contenders |-> StatedTimeout]
  /\ begun = [c \in Contenders |-> FALSE]

Put(queue, message) ==      \* two messages of one kind in a row do what one does
  IF queue # <<>> /\ queue[Len(queue)] = message THEN queue ELSE Append(queue, message)
Connecting(c) == proof[c] = "attach" /\ done[c] = 0
Behind(c) == place[c] = "follower"

(********************************** the leader ***********************************)
(* Its ping loop.                                                                 *)
Ping ==
  /\ pinged = HalfTick
  /\ pinged' = 0
  /\ awake' = [c \in Contenders |-> Never]
  /\ down' = [c \in Contenders |-> IF Behind(c) THEN Put(down[c], "ping") ELSE down[c]]
  /\ UNCHANGED <<left, session, taken, place, table, up, request, client>>

(* A follower's reply to a ping: touchSession. A session that is taken is touched *)
(* as well, and ends all the same.                                                *)
Touched(c) == [left EXCEPT ![c] = IF session[c] = "ended" THEN 0 ELSE SessionTimeout]
Count(c) ==
  /\ up[c] # <<>> /\ Head(up[c]) = "touches"
  /\ up' = [up EXCEPT ![c] = Tail(@)]
  /\ left' = Touched(c)
  /\ UNCHANGED <<pinged, session, awake, taken, place, table, down, request, client>>

(* REVALIDATE. A leader that was deposed answers it, too, and moves no clock but   *)
(* its own.                                                                       *)
Revalidate(c) ==
  /\ up[c] # <<>> /\ Head(up[c]) = "request" /\ Connecting(c)
  /\ place[c] = "deposed" \/ session[c] # "ended"
  /\ up' = [up EXCEPT ![c] = Tail(@)]
  /\ down' = [down EXCEPT ![c] = Append(@, "request")]
  /\ left' = IF place[c] = "deposed" THEN left ELSE Touched(c)
  /\ UNCHANGED <<pinged, session, awake, taken, place, table, request, client>>

(* A write is checked when it comes, and committed after a quorum has it. Taken    *)
(* for granted:                                                                   *)
(*  - the leader has sent an overdue ping the slack after a commit;               *)
(*  - it has marked the sessions that it took the slack after a commit.           *)
(* For as long as it is paused it does nothing, so nothing is asked of it then.    *)
MarksInTime(c) == Rule("mark in time") => taken[c] < Slack
PingsInTime(c) == Rule("ping in time") => awake[c] < Slack
Check(c) ==
  /\ up[c] # <<>> /\ Head(up[c]) = "request" /\ ~Connecting(c)
  /\ place[c] # "deposed" /\ session[c] # "ended" /\ MarksInTime(c)
  /\ up' = [up EXCEPT ![c] = Tail(@)]
  /\ request' = [request EXCEPT ![c] = "checked"]
  /\ UNCHANGED <<leader, place, table, down, client>>
Start(clock, if) == IF if /\ clock = Never THEN 0 ELSE clock
Commit(c) ==
  /\ request[c] = "checked" /\ place[c] # "deposed"
  /\ MarksInTime(c) /\ PingsInTime(c)
  /\ awake' = [awake EXCEPT ![c] = Start(@, Behind(c) /\ pinged = HalfTick)]
  /\ taken' = [taken EXCEPT ![c] = Start(@, session[c] = "taken")]
  /\ down' = [down EXCEPT ![c] = Append(@, "request")]
  /\ request' = [request EXCEPT ![c] = "link"]
  /\ UNCHANGED <<pinged, left, session, place, table, up, client>>

(* The expirer. It takes the sessions that end with one tick of the ensemble out   *)
(* of the queue at once, and then marks them one by one.                          *)
Ends(B, as) ==
  /\ session' = [c \in Contenders |-> IF c \in B THEN as ELSE session[c]]
  /\ left' = [c \in Contenders |-> IF c \in B /\ as = "ended" THEN 0 ELSE left[c]]
  /\ awake' = [c \in Contenders |-> IF c \in B /\ as = "ended" THEN Never ELSE awake[c]]
  /\ taken' = [c \in Contenders |-> IF c \in B THEN Never ELSE taken[c]]
  /\ UNCHANGED <<pinged, link, request, client>>
Take == \E B \in SUBSET {c \in Contenders : session[c] = "live" /\ left[c] = 0} :
  /\ B # {} /\ \A c \in Contenders : session[c] # "taken"
  /\ Ends(B, IF Rule("two steps of the expirer") THEN "taken" ELSE "ended")
Mark(c) == session[c] = "taken" /\ Ends({c}, "ended")

(* An election. The clocks of all sessions start anew. Every connection ends, or   *)
(* stays with the old leader, which looks the same to a client for a while; what   *)
(* the old leader has committed may still be answered over it.                    *)
Elect ==
  /\ Elections
  /\ pinged' = 0
  /\ left' = [c \in Contenders |-> IF session[c] = "ended" THEN 0 ELSE SessionTimeout]
  /\ session' = [c \in Contenders |-> IF session[c] = "taken" THEN "live" ELSE session[c]]
  /\ awake' = [c \in Contenders |-> Never] /\ taken' = [c \in Contenders |-> Never]
  /\ place' = [c \in Contenders |-> "deposed"]
  /\ table' = [c \in Contenders |-> FALSE]
  /\ up' = [c \in Contenders |-> SelectSeq(up[c], LAMBDA m : m = "request")]
  /\ down' = [c \in Contenders |-> SelectSeq(down[c], LAMBDA m : m = "request")]
  /\ UNCHANGED <<request, client>>

(******************************** the other servers *******************************)
(* A server's thread for its clients notes the touch before anything else; on the  *)
(* leader that counts at once. A follower's thread first fetches the table, and    *)
(* then writes into it: "fetched" and "torn" are for the touches that get lost.   *)
Receive(c) ==
  /\ request[c] = "sent" /\ ~Connecting(c) /\ place[c] # "deposed"
  /\ \/ /\ Behind(c) /\ Rule("no lost touch")
        /\ table' = [table EXCEPT ![c] = TRUE] /\ left' = left
        /\ request' = [request EXCEPT ![c] = "noted"]
     \/ /\ Behind(c) /\ ~Rule("no lost touch")
        /\ UNCHANGED <<table, left>>
        /\ request' = [request EXCEPT ![c] = "fetched"]
     \/ /\ place[c] = "leader"
        /\ left' = Touched(c) /\ table' = table
        /\ request' = [request EXCEPT ![c] = "noted"]
  /\ UNCHANGED <<pinged, session, awake, taken, place, up, down, client>>
Note(c) ==
  /\ request[c] \in {"fetched", "torn"}
  /\ table' = [table EXCEPT ![c] = @ \/ request[c] = "fetched"]
  /\ request' = [request EXCEPT ![c] = "noted"]
  /\ UNCHANGED <<leader, place, up, down, client>>
(* Its pipeline forwards the request later; a request to connect has no touch.     *)
Forward(c) ==
  /\ request[c] = "noted" \/ (request[c] = "sent" /\ Connecting(c))
  /\ up' = [up EXCEPT ![c] = Append(@, "request")]
  /\ request' = [request EXCEPT ![c] = "link"]
  /\ UNCHANGED <<leader, place, table, down, client>>
(* One thread handles what comes from the leader, in order: pings ...             *)
AnswerPing(c) ==
  /\ down[c] # <<>> /\ Head(down[c]) = "ping"
  /\ down' = [down EXCEPT ![c] = Tail(@)]
  /\ up' = [up EXCEPT ![c] = IF table[c] THEN Put(@, "touches") ELSE @]
  /\ table' = [table EXCEPT ![c] = FALSE]
  /\ request' = [request EXCEPT ![c] = IF @ = "fetched" THEN "torn" ELSE @]
  /\ UNCHANGED <<leader, place, client>>
(* A mutant: a read or a ping, which the server answers by itself.                *)
AnswerAlone(c) ==
  /\ ~Rule("quorum writes") /\ request[c] = "noted"
  /\ request' = [request EXCEPT ![c] = "answered"]
  /\ UNCHANGED <<leader, link, client>>
(* ... and commits, and confirmations of a session.                               *)
Answer(c) ==
  /\ down[c] # <<>> /\ Head(down[c]) = "request"
  /\ down' = [down EXCEPT ![c] = Tail(@)]
  /\ request' = [request EXCEPT ![c] = "answered"]
  /\ UNCHANGED <<leader, place, table, up, client>>

(*********************************** the client ***********************************)
(* One request at a time. More of them would only touch the session once more.     *)
(* What is sent to a leader that was deposed is not answered, and is left out.     *)
Send(c, p, d, f) ==
  /\ request[c] = "none" /\ ~Connecting(c) /\ place[c] # "deposed"
  /\ request' = [request EXCEPT ![c] = "sent"]
  /\ proof' = [proof EXCEPT ![c] = p] /\ done' = [done EXCEPT ![c] = d]
  /\ from' = [from EXCEPT ![c] = f] /\ since' = [since EXCEPT ![c] = 0]
  /\ UNCHANGED <<leader, link, lease, begun>>

(* The first renewal of a proof. The proof before it is forgotten.                *)
Begin(c) == "renewals" \in Proofs /\ Send(c, "renewals", 0, 0)
(* The next one; the first write over a new connection; the second write of a      *)
(* lease that has lapsed.                                                         *)
Continue(c) ==
  /\ \/ proof[c] = "renewals" /\ done[c] > 0 /\ since[c] >= Gaps[done[c]]
     \/ proof[c] = "attach"
     \/ proof[c] = "lapsed" /\ (Rule("slack before the second write") => since[c] >= Slack)
  /\ Send(c, proof[c], done[c], from[c])

(* Takes the session to a server. What was under way over the connection before    *)
(* only could touch the session once more, so it is forgotten here as well.        *)
Attach(c, p) ==
  /\ "attach" \in Proofs
  /\ place' = [place EXCEPT ![c] = p] /\ request' = [request EXCEPT ![c] = "sent"]
  /\ table' = [table EXCEPT ![c] = FALSE]
  /\ up' = [up EXCEPT ![c] = <<>>] /\ down' = [down EXCEPT ![c] = <<>>]
  /\ awake' = [awake EXCEPT ![c] = Never]
  /\ proof' = [proof EXCEPT ![c] = "attach"] /\ done' = [done EXCEPT ![c] = 0]
  /\ from' = [from EXCEPT ![c] = 0] /\ since' = [since EXCEPT ![c] = 0]
  /\ UNCHANGED <<pinged, left, session, taken, lease, begun>>

Extend(c, f) ==
  /\ lease' = [lease EXCEPT ![c] = Max(IF begun[c] THEN @ ELSE 0, StatedTimeout - f)]
  /\ begun' = [begun EXCEPT ![c] = TRUE]
Drop(c) ==
  /\ proof' = [proof EXCEPT ![c] = "none"] /\ done' = [done EXCEPT ![c] = 0]
  /\ from' = [from EXCEPT ![c] = 0] /\ since' = [since EXCEPT ![c] = 0]

(* It is shown that the leader counted a touch f ago or later. A lease that is      *)
(* good is extended; one that has lapsed, together with one more write.           *)
Proven(c, f) ==
  IF lease[c] > 0 \/ ~Rule("second write") \/ f = StatedTimeout
    THEN Extend(c, f) /\ Drop(c)
    ELSE /\ proof' = [proof EXCEPT ![c] = "lapsed"] /\ done' = [done EXCEPT ![c] = 0]
         /\ from' = [from EXCEPT ![c] = f] /\ since' = [since EXCEPT ![c] = 0]
         /\ UNCHANGED <<lease, begun>>

Acknowledge(c) ==
  LET sent == IF Rule("from the sending") THEN from[c] ELSE 0
      isLast == CASE proof[c] = "renewals" -> done[c] = Len(Gaps)
                  [] proof[c] = "attach" -> done[c] = 1 \/ ~Rule("attach and a write")
                  [] OTHER -> FALSE
  IN
  /\ request[c] = "answered"
  /\ request' = [request EXCEPT ![c] = "none"]
  /\ CASE proof[c] = "lapsed" -> Extend(c, sent) /\ Drop(c)
       [] isLast -> Proven(c, sent)
       [] OTHER ->
            /\ done' = [done EXCEPT ![c] = @ + 1]
            /\ since' = [since EXCEPT ![c] = IF Rule("gap from the acknowledgement") THEN 0 ELSE @]
            /\ UNCHANGED <<proof, from, lease, begun>>
  /\ UNCHANGED <<leader, link>>

(************************************** time **************************************)
Older(age, cap) == IF age = Never THEN Never ELSE Min(cap, age + 1)
Less(rest) == Max(0, rest - 1)
Waits(c) == request[c] = "none" \/ ~Rule("gap from the acknowledgement")
Tick ==
  /\ pinged' = Min(HalfTick, pinged + 1)
  /\ left' = [c \in Contenders |-> Less(left[c])]
  /\ awake' = [c \in Contenders |-> Older(awake[c], Slack)]
  /\ taken' = [c \in Contenders |-> Older(taken[c], Slack)]
  /\ lease' = [c \in Contenders |-> Less(lease[c])]
  /\ begun' = [c \in Contenders |-> begun[c] \/ lease[c] <= 1]
  /\ from' = [c \in Contenders |-> IF proof[c] = "none" THEN 0 ELSE Min(StatedTimeout, from[c] + 1)]
  /\ since' = [c \in Contenders |->
                IF Waits(c) /\ proof[c] \in {"renewals", "lapsed"} THEN Min(LongestGap, since[c] + 1)
                ELSE 0]
  /\ UNCHANGED <<session, link, request, proof, done>>

Step(c) ==
  \/ Count(c) \/ Revalidate(c) \/ Check(c) \/ Commit(c) \/ Mark(c)
  \/ Receive(c) \/ Note(c) \/ Forward(c) \/ AnswerPing(c) \/ Answer(c) \/ AnswerAlone(c)
  \/ Begin(c) \/ Continue(c) \/ Acknowledge(c)
  \/ \E p \in Places \cup (IF Elections THEN {"deposed"} ELSE {}) : Attach(c, p)
Next == Tick \/ Ping \/ Take \/ Elect \/ \E c \in Contenders : Step(c)
Spec == Init /\ [][Next]_vars
=============================================================================
