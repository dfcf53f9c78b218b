---------------------------- MODULE TakeoverLease ----------------------------
(* The takeover lease, a design: a contender whose node was not renewed for the   *)
(* lease duration loses its place to the contender behind it. Safety alone;       *)
(* TakeoverInTime says how soon.                                                  *)
(*                                                                                *)
(* A renewal is a setData of one's own node, and so raises its version. A takeover *)
(* is one transaction: setData of one's own node, and a delete of the node in      *)
(* front if it still has the version that was seen for the whole wait.            *)
(*                                                                                *)
(* No moment and no version number is kept, so neither is bounded:                 *)
(*  - a time is an age or a remainder on the clock of who measures it, and stops   *)
(*    counting where it stops mattering;                                          *)
(*  - of a version only this is kept: whether it is still its node's newest.       *)
(*    Versions only grow, so a delete that names an older one always fails.       *)
(*                                                                                *)
(* No step has to be taken, so everyone may be paused or crash at any moment.      *)
(* Whether an application may run is a function of the state, so it runs on        *)
(* beside a keeper that is paused, until its time is over.                        *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  N,                \* contenders 1..N, in the order of the queue, so of the tokens
  TwoWrites,        \* those that may have two writes under way; the others have one
  LeaseDuration,    \* L, on the clock of who holds it
  Wait,             \* L', on the clock of who waits
  Rates,            \* how far a clock may go in one tick, chosen anew each time
  SessionTimeout,   \* T; 0: sessions end at any moment, see SessionEnds
  MaxHolders,       \* 2: a semaphore
  Foreign,          \* contenders of other clients: they renew their sessions alone
  Options,          \* "behind a waiter": a waiter is taken over as well;
                    \*   "written by others": anyone writes to nodes;
                    \*   "slow reads": a read's sending and its answer are two steps;
                    \*   "takeovers alone": no session ends, nobody releases;
                    \*   "no release": nobody releases. With SessionTimeout = 0 the end of
                    \*     a session is a stop and a delete at once, so little is lost
  Without           \* rules that are left out, see the README

Rule(name) == name \notin Without
Option(name) == name \in Options
Contenders == 1..N
Never == -1
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

VARIABLES
  node,       \* node[c]: c's node exists
  lease,      \* lease[c]: what is left of c's takeover lease
  writes,     \* writes[c]: c's writes under way, and those whose answer is
  seen,       \* seen[c][d]: how long ago an answer first showed c the version that is
              \*   now the newest of d's node
  reading,    \* reading[c]: how long ago c sent a read (slow reads only)
  stopped,    \* stopped[c]: c's application has stopped for good
  session,    \* session[c]: what is left of c's session lease
  kept,       \* kept[c]: for how long the ensemble keeps c's session at least
  misled,     \* misled[c]: a mutant's contender believes what is not so
  ran         \* the newest of those that have run, or for whom all before it are over

vars == <<node, lease, writes, seen, reading, stopped, session, kept, misled, ran>>

Useless == Max(LeaseDuration, SessionTimeout)   \* a write as old as this gives no lease
Write(kind, front) == [kind |-> kind, front |-> front, age |-> 0, done |-> FALSE]

InFront(c) == {d \in Contenders : d < c /\ node[d]}
IsFirst(c) == Cardinality(InFront(c)) < MaxHolders

(* A contender learns late that it is first. Here it knows at once, so it runs     *)
(* sooner. It does not know that its own node is gone.                            *)
Runs(c) == /\ ~stopped[c]
           /\ IsFirst(c) \/ (~Rule("first with nobody in front") /\ misled[c])
           /\ lease[c] > 0 \/ c \in Foreign
           /\ SessionTimeout > 0 /\ Rule("session lease") => session[c] > 0

(******************************* what must not be ********************************)
NeverMoreHolders == Cardinality({c \in Contenders : Runs(c)}) <= MaxHolders
TokensGrow == MaxHolders = 1 => \A c \in Contenders : Runs(c) => c >= ran

Typed ==
  /\ node \in [Contenders -> BOOLEAN] /\ stopped \in [Contenders -> BOOLEAN]
  /\ misled \in [Contenders -> BOOLEAN]
  /\ lease \in [Contenders -> 0..LeaseDuration]
  /\ session \in [Contenders -> 0..SessionTimeout] /\ kept \in [Contenders -> 0..SessionTimeout]
  /\ \A c \in Contenders : \A w \in writes[c] :
       w.kind \in {"renewal", "takeover"} /\ w.front \in 0..N /\ w.age \in 0..Useless /\ w.done \in BOOLEAN
  /\ seen \in [Contenders -> [Contenders -> Never..Wait]] /\ reading \in [Contenders -> Never..Wait]
  /\ ran \in Contenders

(* What a configuration has to reach, or it would show nothing.                   *)
ASSUME \A i \in 1..4 : TLCSet(i, FALSE)
Seen(i, what, condition) ==
  IF TLCGet(i) \/ ~condition THEN TRUE ELSE TLCSet(i, TRUE) /\ PrintT("reached: " \o what)
TookOver(c) == \E w \in writes[c] : w.kind = "takeover" /\ w.done
Reached ==
  /\ Seen(1, "a takeover", \E c \in Contenders : TookOver(c))
  /\ Seen(2, "the second holds", Runs(2) /\ ~node[1])
  /\ Seen(3, "the last holds after takeovers",
          \E c \in Contenders : c = N /\ Runs(c) /\ InFront(c) = {} /\ TookOver(c))
  /\ Seen(4, "as many hold as may", Cardinality({c \in Contenders : Runs(c)}) = MaxHolders)

Init ==
  /\ node = [c \in Contenders |-> TRUE] /\ stopped = [c \in Contenders |-> FALSE]
  /\ lease = [c \in Contenders |-> 0] /\ writes = [c \in Contenders |-> {}]
  /\ seen = [c \in Contenders |-> [d \in Contenders |-> Never]]
  /\ reading = [c \in Contenders |-> Never]
  /\ session = [c \in Contenders |-> SessionTimeout] /\ kept = [c \in Contenders |-> SessionTimeout]
  /\ misled = [c \in Contenders |-> FALSE] /\ ran = 1

(********************************* the ensemble **********************************)
(* What can only fail from now on is taken away at once: to its sender a failure   *)
(* and a loss are the same, and it may send again at any time.                    *)
CountsAnswers == ~Rule("renewal from its sending") \/ ~Rule("takeover from its sending")
Fails(c, w, nodes, raised) ==
  /\ ~w.done
  /\ \/ ~nodes[c] /\ (w.kind = "renewal" \/ Rule("takeover renews"))
     \/ w.kind = "takeover" /\ (~nodes[w.front] \/ (w.front \in raised /\ Rule("version")))
Left(c, ws, nodes, raised) ==
  LET countsFailure(w) == ~Rule("failed takeover") /\ w.kind = "takeover" /\ nodes[c]
      now == {IF Fails(c, w, nodes, raised) THEN [w EXCEPT !.done = TRUE] ELSE w :
                w \in {v \in ws : Fails(c, v, nodes, raised) => countsFailure(v)}}
  IN {w \in now : ~(w.done /\ w.age >= Useless /\ ~CountsAnswers)}

Change(nodes, raised, ws) ==
  /\ node' = nodes
  /\ writes' = [c \in Contenders |-> Left(c, ws[c], nodes, raised)]
  /\ seen' = [c \in Contenders |-> [d \in Contenders |->
       IF d \in raised \/ ~nodes[d] \/ (~nodes[c] /\ Rule("takeover renews")) THEN Never ELSE seen[c][d]]]
NodesWithout(c) == [node EXCEPT ![c] = FALSE]

(* Writes are carried out in any order, at any time, or never.                    *)
CommitOf(c, w) ==
  LET ws == [writes EXCEPT ![c] = (@ \ {w}) \cup {[w EXCEPT !.done = TRUE]}]
      raises == IF w.kind = "renewal" THEN Rule("renewal raises the version")
                ELSE Rule("takeover renews")
  IN
  /\ ~w.done
  /\ Change(IF w.kind = "takeover" THEN NodesWithout(w.front) ELSE node, IF raises THEN {c} ELSE {}, ws)
  /\ kept' = [kept EXCEPT ![c] = Max(@, SessionTimeout - w.age)]
  /\ UNCHANGED <<lease, reading, stopped, session, misled>>
Commit(c) == \E w \in writes[c] : CommitOf(c, w)

(* The ensemble ends a session. Without a number for T that happens at any moment, *)
(* and the application runs until that very moment: the session lease promises no  *)
(* more. With a number, that promise is spelt out.                                *)
SessionEnds(c) ==
  LET stops == SessionTimeout = 0 /\ Rule("session lease") IN
  /\ ~Option("takeovers alone")
  /\ node[c] /\ kept[c] = 0
  /\ Change(NodesWithout(c), {}, IF stops THEN [writes EXCEPT ![c] = {}] ELSE writes)
  /\ stopped' = [stopped EXCEPT ![c] = @ \/ stops]
  /\ lease' = [lease EXCEPT ![c] = IF stops THEN 0 ELSE @]
  /\ UNCHANGED <<reading, session, kept, misled>>

LoseOf(c, w) ==     \* a write, or its answer
  /\ writes' = [writes EXCEPT ![c] = @ \ {w}]
  /\ UNCHANGED <<node, lease, seen, reading, stopped, session, kept, misled>>
Lose(c) == \E w \in writes[c] : LoseOf(c, w)

(* Somebody else writes to a node. A mutant's contender that sees the version      *)
(* raised takes its own lost renewal for done.                                    *)
WriteByOther(c) ==
  /\ Option("written by others") /\ node[c]
  /\ Change(node, {c}, writes)
  /\ misled' = [misled EXCEPT ![c] = ~Rule("own answer")]
  /\ UNCHANGED <<lease, reading, stopped, session, kept>>
Mistake(c) == \E w \in writes[c] :
  /\ ~Rule("own answer") /\ misled[c] /\ ~w.done /\ w.kind = "renewal"
  /\ writes' = [writes EXCEPT ![c] = (@ \ {w}) \cup {[w EXCEPT !.done = TRUE]}]
  /\ misled' = [misled EXCEPT ![c] = FALSE]
  /\ UNCHANGED <<node, lease, seen, reading, stopped, session, kept>>

(********************************* the contenders ********************************)
Room(c) == Cardinality(writes[c]) < (IF c \in TwoWrites THEN 2 ELSE 1)
Takes(c) == node[c] /\ ~stopped[c] /\ c \notin Foreign
Send(c, w) ==
  /\ Takes(c) /\ Room(c) /\ w \notin writes[c]
  /\ writes' = [writes EXCEPT ![c] = @ \cup {w}]
  /\ UNCHANGED <<node, seen, reading, stopped, session, kept, misled>>

Renew(c) ==
  /\ Send(c, Write("renewal", 0))
  /\ lease' = IF Rule("acknowledged") THEN lease ELSE [lease EXCEPT ![c] = LeaseDuration]

(* An answer arrives. The lease is counted from the sending of that very write.    *)
Youngest(ws) == CHOOSE a \in {w.age : w \in ws} : \A w \in ws : w.age >= a
AcknowledgeOf(c, w) ==
  LET age == CASE w.kind = "renewal" /\ ~Rule("renewal from its sending") -> 0
               [] w.kind = "takeover" /\ ~Rule("takeover from its sending") -> 0
               [] w.kind = "renewal" /\ ~Rule("answer to this attempt") ->
                    Youngest({v \in writes[c] : v.kind = "renewal"})
               [] OTHER -> w.age
      counts == w.kind = "renewal" \/ Rule("takeover renews") \/ ~Rule("only renewals count")
  IN
  /\ w.done
  /\ writes' = [writes EXCEPT ![c] = @ \ {w}]
  /\ lease' = [lease EXCEPT ![c] = IF counts THEN Max(@, LeaseDuration - age) ELSE @]
  /\ session' = [session EXCEPT ![c] = IF counts THEN Max(@, SessionTimeout - w.age) ELSE @]
  /\ misled' = [misled EXCEPT ![c] =
       @ \/ (~Rule("first with nobody in front") /\ w.kind = "takeover")]
  /\ UNCHANGED <<node, seen, reading, stopped, kept>>
Acknowledge(c) == \E w \in writes[c] : AcknowledgeOf(c, w)

(* The answer to a read arrives, and shows the newest version. An answer that      *)
(* shows an older one changes nothing, however late it or its server is. A version *)
(* that was seen before keeps the moment at which it was seen first.              *)
SlowReads == Option("slow reads")
ObserveOf(c, d) ==
  /\ Takes(c) /\ seen[c][d] = Never
  /\ SlowReads => reading[c] # Never
  /\ SlowReads /\ Rule("wait from the answer") => reading[c] <= Wait - LeaseDuration
  /\ seen' = [seen EXCEPT ![c][d] = IF SlowReads THEN reading[c] ELSE 0]
  /\ reading' = [reading EXCEPT ![c] = Never]
  /\ UNCHANGED <<node, lease, writes, stopped, session, kept, misled>>
Observe(c) == \E d \in InFront(c) : ObserveOf(c, d)
Read(c) ==
  /\ SlowReads /\ Takes(c) /\ c > 1
  /\ reading' = [reading EXCEPT ![c] = 0]
  /\ UNCHANGED <<node, lease, writes, seen, stopped, session, kept, misled>>

(* The first waiter takes over any of the holders. With "behind a waiter" each     *)
(* takes over the nearest in front, and is first only with nobody in front.       *)
Nearest == Option("behind a waiter")
IsHeir(c) == IF Nearest THEN InFront(c) # {} ELSE Cardinality(InFront(c)) = MaxHolders
MayTakeOver(c, d) ==
  /\ d \in InFront(c)
  /\ Nearest => \A x \in InFront(c) : x <= d
  /\ ~Rule("any of the holders") => \A x \in InFront(c) : x >= d
  /\ Rule("foreign contenders are left alone") => d \notin Foreign
TakeOverOf(c, d) ==
  /\ IsHeir(c) /\ MayTakeOver(c, d) /\ seen[c][d] >= Wait
  /\ Send(c, Write("takeover", d)) /\ lease' = lease
TakeOver(c) == \E d \in Contenders : TakeOverOf(c, d)

(* A clean release: the application stops, then a delete is sent, and carried out  *)
(* at any time. What does not matter any more gets one value.                     *)
Releases == ~Option("takeovers alone") /\ ~Option("no release")
Stop(c) ==
  /\ Releases /\ Takes(c)
  /\ stopped' = [stopped EXCEPT ![c] = TRUE]
  /\ writes' = [writes EXCEPT ![c] = {w \in @ : ~w.done}]
  /\ lease' = [lease EXCEPT ![c] = 0] /\ session' = [session EXCEPT ![c] = 0]
  /\ seen' = [seen EXCEPT ![c] = [d \in Contenders |-> Never]]
  /\ reading' = [reading EXCEPT ![c] = Never]
  /\ UNCHANGED <<node, kept, misled>>
Delete(c) ==
  /\ Releases /\ node[c] /\ (stopped[c] \/ ~Rule("stop before release"))
  /\ Change(NodesWithout(c), {}, writes)
  /\ UNCHANGED <<lease, reading, stopped, session, kept, misled>>

(************************************** time *************************************)
Older(age, by, cap) == IF age = Never THEN Never ELSE Min(cap, age + by)
Pass(by) ==     \* by[c] on the clock of c
  /\ lease' = [c \in Contenders |-> Max(0, lease[c] - by[c])]
  /\ session' = [c \in Contenders |-> Max(0, session[c] - by[c])]
  /\ kept' = [c \in Contenders |-> Max(0, kept[c] - by[c])]
  /\ writes' = [c \in Contenders |->
       Left(c, {[w EXCEPT !.age = Older(@, by[c], Useless)] : w \in writes[c]}, node, {})]
  /\ seen' = [c \in Contenders |-> [d \in Contenders |-> Older(seen[c][d], by[c], Wait)]]
  /\ reading' = [c \in Contenders |-> Older(reading[c], by[c], Wait)]
  /\ UNCHANGED <<node, stopped, misled>>
Tick == \E by \in [Contenders -> Rates] : Pass(by)

(* Nobody before c will ever run again.                                           *)
IsOver(c) == ~node[c] /\ (stopped[c] \/ (c \notin Foreign /\ lease[c] = 0 /\ writes[c] = {}))
Remember ==
  ran' = LET S == {ran} \cup {c \in Contenders : Runs(c)' \/ \A d \in 1..(c - 1) : IsOver(d)'}
         IN CHOOSE c \in S : \A d \in S : c >= d

Step(c) ==
  \/ Commit(c) \/ SessionEnds(c) \/ Lose(c) \/ WriteByOther(c) \/ Mistake(c)
  \/ Renew(c) \/ Acknowledge(c) \/ Observe(c) \/ Read(c) \/ TakeOver(c) \/ Stop(c) \/ Delete(c)
Next == (Tick \/ \E c \in Contenders : Step(c)) /\ Remember
Spec == Init /\ [][Next]_vars
=============================================================================
