---------------------------- MODULE TakeoverInTime ----------------------------
(* How soon a takeover comes, and that nobody healthy suffers from it. The actions *)
(* are those of TakeoverLease, and in time: a message takes at most one tick,      *)
(* nothing is lost, nobody pauses and no session ends by itself. Some contenders   *)
(* crash, at any moment, for ever. Time passes only when nothing is overdue. So    *)
(* the bounds are invariants.                                                     *)
EXTENDS TakeoverLease

CONSTANTS
  Crashes,      \* who may crash
  Leaves,       \* who may release
  Renewing,     \* waiters that renew as holders do
  Fresh,        \* an heir counts a version only from when it is the heir
  Bound         \* after so many ticks the next one holds
VARIABLES
  gone,         \* gone[c]: how long ago c crashed or left
  committed           \* committed[c]: how long ago the newest version of c's node was committed

allVars == <<vars, gone, committed>>
Up(c) == gone[c] = Never
Notices == 2    \* an heir knows of a commit so many ticks later: it polls, or is told

InitInTime == Init /\ gone = [c \in Contenders |-> Never] /\ committed = [c \in Contenders |-> 0]

Watches(c, d) == node[c] /\ IsHeir(c) /\ MayTakeOver(c, d)
MustRenew(c) == Up(c) /\ node[c] /\ (IsFirst(c) \/ c \in Renewing)
Has(c, kind) == \E w \in writes[c] : w.kind = kind
NothingOverdue == \A c \in Contenders :
  /\ \A w \in writes[c] : IF w.done THEN Up(c) => w.age < 2 ELSE w.age < 1
  /\ MustRenew(c) => writes[c] # {} \/ lease[c] = LeaseDuration
  /\ \A d \in Contenders : (Up(c) /\ Watches(c, d)) =>
       /\ seen[c][d] = Never => committed[d] < Notices
       /\ seen[c][d] >= Wait => Has(c, "takeover")

TickInTime ==
  /\ NothingOverdue /\ Tick
  /\ gone' = [c \in Contenders |-> Older(gone[c], 1, Bound + 1)]
  /\ committed' = [c \in Contenders |-> Older(committed[c], 1, Notices)]
CommitInTime(c) == Commit(c) /\ committed' = [committed EXCEPT ![c] = 0] /\ UNCHANGED gone
RenewInTime(c) ==
  /\ MustRenew(c) /\ lease[c] # LeaseDuration /\ ~Has(c, "renewal") /\ Renew(c) /\ UNCHANGED <<gone, committed>>
AcknowledgeInTime(c) == Up(c) /\ Acknowledge(c) /\ UNCHANGED <<gone, committed>>
ObserveInTime(c) ==
  /\ Up(c) /\ Observe(c) /\ UNCHANGED <<gone, committed>>
  /\ Fresh => \A d \in Contenders : seen'[c][d] # seen[c][d] => Watches(c, d)
TakeOverInTime(c) == Up(c) /\ ~Has(c, "takeover") /\ TakeOver(c) /\ UNCHANGED <<gone, committed>>
Crash(c) == c \in Crashes /\ Up(c) /\ gone' = [gone EXCEPT ![c] = 0] /\ UNCHANGED <<vars, committed>>
Leave(c) ==     \* the end of a session is a stop and a delete at once
  c \in Leaves /\ Up(c) /\ SessionEnds(c) /\ gone' = [gone EXCEPT ![c] = 0] /\ UNCHANGED committed

StepInTime(c) ==
  \/ CommitInTime(c) \/ RenewInTime(c) \/ AcknowledgeInTime(c) \/ ObserveInTime(c) \/ TakeOverInTime(c)
  \/ Leave(c)
NextInTime == \/ (TickInTime \/ \E c \in Contenders : StepInTime(c)) /\ Remember
              \/ \E c \in Contenders : Crash(c)
SpecInTime == InitInTime /\ [][NextInTime]_allVars

(* Nobody who is up loses its place.                                              *)
HealthyKeepTheirPlace == \A c \in Contenders : Up(c) => node[c]
(* All that stand in c's way are gone for longer than the bound: c holds.          *)
NextHoldsInTime == \A c \in Contenders :
  (/\ Up(c) /\ c > MaxHolders
   /\ Cardinality({d \in Crashes \cup Leaves : d < c /\ gone[d] > Bound}) >= c - MaxHolders) => Runs(c)

(* Nothing is overdue for ever, or the bounds would mean nothing.                  *)
FairInTime == SpecInTime /\ \A c \in Contenders :
  /\ WF_allVars(CommitInTime(c) /\ Remember) /\ WF_allVars(RenewInTime(c) /\ Remember)
  /\ WF_allVars(AcknowledgeInTime(c) /\ Remember) /\ WF_allVars(ObserveInTime(c) /\ Remember)
  /\ WF_allVars(TakeOverInTime(c) /\ Remember)
TimePasses == []<>NothingOverdue
=============================================================================
