---------------------------- MODULE TraceTakeover ----------------------------
(* Is what the real task of the lock did on a real ensemble a behaviour of        *)
(* TakeoverLease? A trace is what its contenders sent, what they were answered,   *)
(* and until when they held, with the times of one clock. TLC looks for a         *)
(* behaviour that passes through all events of a trace at their times; between    *)
(* them it may take steps that no contender can see.                              *)
(*                                                                                *)
(* Each step is one of TakeoverLease, or changes none of its variables. Only Jump *)
(* is many at once: as many ticks as lie between two events. Ages and remainders  *)
(* only add up, so that is the same, and a tick may be a microsecond.             *)
EXTENDS TakeoverLease, Recorded    \* Recorded has Traces: sequences of events
                                   \*   <<time, what, who, whom, number>>

VARIABLES
  trace,        \* which one
  next,         \* its next event
  there,        \* time has passed up to that event
  version,      \* version[c]: of c's node; Never before it is created
  left,         \* left[c]: how long c's application may run on, as c itself says
  vain          \* vain[c]: when c sent a write that cannot be carried out any more

traceVars == <<trace, next, there, version, left, vain>>

(* Two bounds that TLC needs elsewhere, and that are no rules: how many writes may *)
(* be under way, and from which age on a write that gives no lease is forgotten.  *)
AnyRoom(c) == TRUE
AnyAge == 1000000000

Events == Traces[trace]
At == Events[next][1]
What == Events[next][2]
Who == Events[next][3]
Whom == Events[next][4]
Number == Events[next][5]
Is(what) == What = what

InitTrace ==
  /\ Init /\ trace \in DOMAIN Traces /\ next = 1 /\ there = FALSE
  /\ version = [c \in Contenders |-> Never] /\ left = [c \in Contenders |-> 0]
  /\ vain = [c \in Contenders |-> {}]

(* An application that runs is one that may run, for as long as its contender says. *)
Covered == \A c \in Contenders : left[c] > 0 => Runs(c) /\ lease[c] >= left[c]

Jump ==
  /\ next <= Len(Events) /\ ~there /\ there' = TRUE
  /\ LET gap == At - (IF next = 1 THEN 0 ELSE Events[next - 1][1]) IN
       /\ Pass([c \in Contenders |-> gap])
       /\ left' = [c \in Contenders |-> Max(0, left[c] - gap)]
  /\ Remember
  /\ UNCHANGED <<trace, next, version, vain>>

(*************************** what no contender can see ***************************)
(* Such a step is taken as late as possible: when the next event shows it, or can *)
(* only be after it. Nobody can tell the difference.                              *)
Shows(c) ==     \* that a write of c was carried out
  \/ Is("acked") /\ Who = c
  \/ What \in {"read", "shown"} /\ Whom = c /\ version[c] < Number
  \/ What \in {"taking", "refused", "gone"} /\ Whom = c
  \/ Is("gone") /\ \E w \in writes[c] : w.kind = "takeover" /\ w.front = Whom
  \/ /\ version[c] = Never     \* a node behind it exists
     /\ c < (CASE Is("acked") -> Who [] What \in {"read", "shown", "gone"} -> Whom [] OTHER -> 0)
ShowsTheEnd(c) == Is("gone") /\ Whom = c /\ version[c] # Never

(* The writes of one session are carried out in the order of their sending, and   *)
(* the nodes of a queue are created in the order of their numbers.                *)
Oldest(c, w) == ~w.done /\ \A v \in writes[c] : ~v.done => v.age <= w.age
IsNext(c) == version[c] = Never => \A d \in 1..(c - 1) : version[d] # Never
CommitUnseen(c) == Shows(c) /\ IsNext(c) /\ \E w \in writes[c] :
  /\ Oldest(c, w) /\ CommitOf(c, w)
  /\ version' = [version EXCEPT ![c] = @ + 1]
LoseUnseen(c) == Shows(c) /\ version[c] # Never /\ \E w \in writes[c] :
  /\ Oldest(c, w) /\ (\E v \in writes[c] : ~v.done /\ v.age < w.age) /\ LoseOf(c, w)
  /\ UNCHANGED version
EndUnseen(c) == ShowsTheEnd(c) /\ left[c] = 0 /\ SessionEnds(c) /\ UNCHANGED version
DeleteUnseen(c) == ShowsTheEnd(c) /\ Delete(c) /\ UNCHANGED version

Unseen ==
  /\ next <= Len(Events) /\ there
  /\ \E c \in Contenders :
       CommitUnseen(c) \/ LoseUnseen(c) \/ EndUnseen(c) \/ DeleteUnseen(c)
  /\ Remember
  /\ UNCHANGED <<trace, next, there, left, vain>>

(************************************ the events **********************************)
Nothing == UNCHANGED vars
InVain == Nothing /\ vain' = [vain EXCEPT ![Who] = @ \cup {At}]
Sends(step) == step /\ Remember /\ UNCHANGED vain
Age == At - Number     \* of the write that was sent at Number

(* A renewal was sent, or the creation. Who is not in the queue any more may not  *)
(* know that yet, and sends in vain.                                              *)
Sent == Is("sent") /\ IF Takes(Who) THEN Sends(Renew(Who)) ELSE InVain

(* A takeover was sent. It names a version, and can only fail if that is not the  *)
(* newest one.                                                                    *)
Taking ==
  /\ Is("taking") /\ Number <= version[Whom]
  /\ IF Takes(Who) /\ node[Whom] /\ version[Whom] = Number
       THEN Sends(TakeOverOf(Who, Whom)) ELSE InVain

(* The write that was sent at Number was acknowledged. To one that has stopped    *)
(* the answer means nothing; but the write was carried out.                       *)
Acked ==
  /\ Is("acked")
  /\ IF stopped[Who] THEN /\ Number \notin vain[Who] /\ Nothing
                          /\ \A w \in writes[Who] : w.age = Age => w.done
     ELSE (\E w \in writes[Who] : w.age = Age /\ AcknowledgeOf(Who, w)) /\ Remember

(* It failed: a node of it is gone, or has another version.                       *)
Refused == Is("refused") /\ (\A w \in writes[Who] : w.age # Age) /\ Nothing

(* An answer showed a version of a node that may be taken over ("read"), or of one *)
(* that states no lease and is left alone ("shown").                              *)
IsNews == version[Whom] = Number /\ Whom \in InFront(Who) /\ seen[Who][Whom] = Never
Saw ==
  /\ Is("read") /\ Number <= version[Whom]
  /\ IF Takes(Who) /\ IsNews THEN ObserveOf(Who, Whom) /\ Remember ELSE Nothing
Shown == Is("shown") /\ Number <= version[Whom] /\ Nothing
Gone == Is("gone") /\ ~node[Whom] /\ Nothing

(* The application may run until Number; it has stopped; the delete was sent.     *)
Granted ==
  Is("granted") /\ Nothing /\ left' = [left EXCEPT ![Who] = Max(0, Number - At)]
Stopped == Is("stopped") /\ Nothing /\ left' = [left EXCEPT ![Who] = 0]
Releasing == Is("releasing") /\ IF Takes(Who) THEN Stop(Who) /\ Remember ELSE Nothing

Happens ==
  /\ next <= Len(Events) /\ there /\ next' = next + 1 /\ there' = FALSE
  /\ \/ (Granted \/ Stopped) /\ UNCHANGED vain
     \/ (Sent \/ Taking) /\ UNCHANGED left
     \/ (Acked \/ Refused \/ Saw \/ Shown \/ Gone \/ Releasing) /\ UNCHANGED <<left, vain>>
  /\ UNCHANGED <<trace, version>>

NextTrace == (Jump \/ Unseen \/ Happens) /\ Covered'
SpecTrace == InitTrace /\ [][NextTrace]_<<vars, traceVars>>

(* A trace is accepted if a behaviour comes to its end. TLC says how far it comes. *)
Register(t) == 4 + t
ASSUME \A t \in DOMAIN Traces : TLCSet(Register(t), 0)
Followed ==
  IF next <= TLCGet(Register(trace)) THEN TRUE
  ELSE /\ TLCSet(Register(trace), next)
       /\ PrintT("trace " \o ToString(trace) \o " up to event " \o ToString(next - 1))
       /\ next > Len(Events) => PrintT("accepted: " \o ToString(trace))
=============================================================================
