------------------------------- MODULE Quorum -------------------------------
(* Elections, replication and disks of a kraftfast quorum: what kraftfast/core decides, with the
   faults that its log and its network may meet. Each action is named after an event of the core
   and says which of its files it stands for; D and I numbers are those of ARCHITECTURE.md.

   What is left out, and why no behaviour is lost by it:
   - Time. Every timer may expire at any moment, or never.
   - Answers. A vote, and a follower's acknowledgement, counts for its receiver from the step in
     which it is sent; that the answer is late or lost is the same as that the receiver acts on it
     late (OnVotesWon, OnAcknowledged) or never. Vote requests do travel: one may be judged
     long after it was sent, and more than once (asks).
   - A flush under way. One that ends made durable what was appended when it began, which is any
     prefix of the log as it is now, unless a cut came between (D2).
   - A replica that is down: it is one that is slow. Power cuts and restarts take one step.
   - The voter set, snapshots and observers. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Server,      \* the voters
    Nil,         \* no replica
    MaxEpoch,    \* no epoch is begun beyond it
    MaxLen,      \* no log grows longer
    MaxRestarts, \* power cuts and killed processes in a history
    MaxDamaged,  \* power cuts that also damage what was flushed; below a majority
    Without,     \* what may happen, but is left out of this search
    Broken       \* the rules that a mutant does not keep

VARIABLES
    (* quorum-state, on disk before anything depends on it (D5) *)
    epoch, leader, voted,
    (* the role, in memory *)
    role,
    votes,       \* who granted the (pre-)votes of the present campaign
    unanimous,   \* whether that campaign must win every voter (D10)
    asks,        \* the vote requests that are under way
    (* the log *)
    log,         \* the epochs of its records, in the page cache
    disk,        \* so many of them are on disk, whatever happens
    flushed,     \* so many the replica believes to be on disk
    stale,       \* where a flush ends that began before the log was cut, 0 for none
    phantom,     \* <<epoch, offset>>: what it may have acknowledged and lost (D10)
    (* replication, in memory *)
    stream,      \* whether the follower's log was found to fit its leader's
    told,        \* what each follower told each leader to have on disk (D3)
    known,       \* up to where the replica knows its log to be committed
    (* how often what happened, and what the invariants look back on *)
    restarts, damaged,
    committed,   \* for each offset: its record's epoch, and the first epoch that committed it
    elected      \* for each epoch: its leader, and the log that it was elected with

persistent == <<epoch, leader, voted>>
campaign == <<votes, unanimous>>
storage == <<log, disk, flushed, stale, phantom>>
faults == <<restarts, damaged>>
history == <<committed, elected>>
vars == <<persistent, role, campaign, asks, storage, stream, told, known, faults, history>>

Symmetry == Permutations(Server)

-----------------------------------------------------------------------------
Keeps(rule) == rule \notin Broken
With(event) == event \notin Without

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
IsMajority(set) == 2 * Cardinality(set) > Cardinality(Server)

(* Where a log ends: compared as (epoch, offset), never as a length. *)
LastEpoch(l) == IF l = <<>> THEN 0 ELSE l[Len(l)]
End(l) == <<LastEpoch(l), Len(l)>>
AtLeast(a, b) == a[1] > b[1] \/ (a[1] = b[1] /\ a[2] >= b[2])
Prefix(l, n) == SubSeq(l, 1, n)
NoPhantom == <<0, 0>>

InDoubt(r) == phantom[r] /= NoPhantom
IsDurable(r) == flushed[r] >= Len(log[r])

(* core/elections/doubt.py, covered: the doubt ends once the log has on disk again what may be lost. *)
Covered(mark, l) == IF AtLeast(End(l), mark) THEN NoPhantom ELSE mark

(* core/trail.pyx, end_offset_for: where the records of the largest epoch not above e end. *)
EndOffsetFor(l, e) ==
    LET below == {n \in 1..Len(l) : l[n] <= e}
    IN IF below = {} THEN <<e, 0>>
       ELSE LET n == CHOOSE n \in below : \A m \in below : m <= n IN <<l[n], n>>

(* core/replication/validation.py, validate: where the logs part, or VALID if the fetcher's can go on. *)
VALID == <<0, -1>>
Validate(l, offset, e) ==
    LET end == EndOffsetFor(l, e)
    IN IF offset = 0 \/ (end[1] = e /\ end[2] >= offset) THEN VALID ELSE end

(* core/replication/on_fetch_response.py, truncation_offset. *)
TruncationOffset(l, diverging) ==
    LET end == EndOffsetFor(l, diverging[1])
    IN IF diverging[1] = 0 THEN Min(diverging[2], Len(l))
       ELSE IF end[1] = diverging[1] THEN Min(end[2], diverging[2]) ELSE end[2]

(* core/elections/on_vote.py, is_long_enough: a voter in doubt also compares with what it may have lost, but
   not in a unanimous election (D10). *)
IsLongEnough(v, end, all) ==
    /\ AtLeast(end, End(log[v]))
    /\ all \/ AtLeast(end, phantom[v]) \/ ~Keeps("D10.vote")

IsWon(c) == IF unanimous[c] THEN votes[c] = Server ELSE IsMajority(votes[c])

(* A vote request that nobody can judge any more is forgotten; the answer to one of an earlier
   candidacy (live = FALSE) reaches nobody. *)
AsksAfter(r, new) ==
    LET all == {[a EXCEPT !.live = @ /\ a.from /= r] : a \in asks} \cup new
    IN {a \in all : /\ \E v \in Server \ {a.from} : epoch'[v] <= a.epoch
                    /\ a.live \/ [a EXCEPT !.live = TRUE] \notin all}

(* An elected log is remembered while a leader of an earlier epoch may still commit. *)
Forgotten == <<0>>
ElectedAfter(then) ==
    [e \in 1..MaxEpoch |->
        IF \E r \in Server : role'[r] = "Leader" /\ epoch'[r] < e
        THEN then[e] ELSE [then[e] EXCEPT !.log = Forgotten]]

(* core/transitions.py, _enter: a new role; quorum-state is written first, nothing of the old role is
   left, and the streams from and to the replica end. *)
Enter(r, newRole, newEpoch, newLeader, newVoted, newAsks, newElected) ==
    /\ role' = [role EXCEPT ![r] = newRole]
    /\ epoch' = [epoch EXCEPT ![r] = newEpoch]
    /\ leader' = [leader EXCEPT ![r] = newLeader]
    /\ voted' = [voted EXCEPT ![r] = newVoted]
    /\ stream' = [s \in Server |-> stream[s] /\ s /= r /\ leader[s] /= r]
    /\ told' = [told EXCEPT ![r] = [s \in Server |-> 0]]
    /\ asks' = AsksAfter(r, newAsks)
    /\ elected' = ElectedAfter(newElected)

(* No campaign goes on. *)
Idle(r) ==
    /\ votes' = [votes EXCEPT ![r] = {}]
    /\ unanimous' = [unanimous EXCEPT ![r] = FALSE]

ToUnattached(r, e, vote) == Enter(r, "Unattached", e, Nil, vote, {}, elected) /\ Idle(r)

(* What f has told the leader it follows once its log is l and f believes n records to be on disk
   (D3). It may tell so at once: it is the leader that may learn of it late. *)
Tells(f, l, n) ==
    LET offset == IF Keeps("D3") THEN Min(n, Len(l)) ELSE Len(l)
    IN [told EXCEPT ![leader[f]][f] = Max(@, offset)]

Follows(f, l) ==
    role[f] = "Follower" /\ leader[f] = l /\ role[l] = "Leader" /\ epoch[f] = epoch[l]

-----------------------------------------------------------------------------
(* Elections. *)

(* core/on_tick.py, core/elections/campaigning.py (begin_campaign), core/transitions.py (transition_to_prospective): a replica
   in doubt asks all voters, one that such a voter refused does so in its turn (D10). *)
OnElectionTimeout(c) ==
    /\ role[c] \in {"Unattached", "Follower", "Candidate"}
    /\ epoch[c] < MaxEpoch
    /\ \E all \in BOOLEAN :
        /\ InDoubt(c) /\ Keeps("D10.campaign") => all
        /\ all => \E v \in Server : InDoubt(v)
        /\ unanimous' = [unanimous EXCEPT ![c] = all]
    /\ votes' = [votes EXCEPT ![c] = {c}]
    /\ Enter(c, "Prospective", epoch[c], leader[c], voted[c], {}, elected)
    /\ UNCHANGED <<storage, known, faults, committed>>

(* core/elections/on_vote.py, on_pre_vote; core/elections/on_vote_response.py: nothing is promised, nothing moves. A
   follower grants if its leader is silent or never answered; a leader does not. *)
OnPreVote(v, c) ==
    /\ With("pre-votes")
    /\ role[c] = "Prospective" /\ v \notin votes[c]
    /\ role[v] /= "Leader"
    /\ epoch[v] <= epoch[c]
    /\ IsLongEnough(v, End(log[c]), unanimous[c])
    /\ votes' = [votes EXCEPT ![c] = @ \cup {v}]
    /\ UNCHANGED <<persistent, role, unanimous, asks, storage, stream, told, known, faults,
                   history>>

(* core/elections/campaigning.py, give_up_campaign. *)
OnStandDown(c) ==
    /\ With("standing down")
    /\ role[c] = "Prospective"
    /\ Enter(c, IF leader[c] \in {Nil, c} THEN "Unattached" ELSE "Follower",
             epoch[c], leader[c], voted[c], {}, elected)
    /\ Idle(c)
    /\ UNCHANGED <<storage, known, faults, committed>>

(* core/elections/campaigning.py, decide and become_candidate: the tail is on disk before votes are asked for
   (D21). Where the voters know no pre-vote, none is needed. *)
MayCampaign(c) ==
    /\ role[c] = "Prospective"
    /\ With("pre-votes") => IsWon(c)
    /\ epoch[c] < MaxEpoch
    /\ Keeps("D21.flush") => IsDurable(c)

Ask(c) ==
    [from |-> c, epoch |-> epoch[c] + 1, end |-> End(log[c]), all |-> unanimous[c], live |-> TRUE]

(* core/elections/campaigning.py, request_votes; core/transitions.py, transition_to_candidate. *)
OnPreVotesWon(c) ==
    /\ MayCampaign(c)
    /\ votes' = [votes EXCEPT ![c] = {c}]
    /\ Enter(c, "Candidate", epoch[c] + 1, Nil, c, {Ask(c)}, elected)
    /\ UNCHANGED <<unanimous, storage, known, faults, committed>>

(* core/elections/on_vote.py, on_standard_vote and grants; core/elections/on_vote_response.py. A leader is not moved
   (is_shielded); a follower is only if its leader is silent. A vote given before in this epoch is
   given again, but only to a log that is still long enough (D21). *)
OnVote(v, a) ==
    LET c == a.from
        long == IsLongEnough(v, a.end, a.all)
        counts == a.live /\ role[c] = "Candidate" /\ epoch[c] = a.epoch
        count == votes' = IF counts THEN [votes EXCEPT ![c] = @ \cup {v}] ELSE votes
    IN
    /\ v /= c
    /\ \/ /\ a.epoch > epoch[v]
          /\ role[v] /= "Leader"
          /\ Enter(v, "Unattached", a.epoch, Nil, IF long THEN c ELSE Nil, {}, elected)
          /\ LET left == [votes EXCEPT ![v] = {}]
             IN votes' = IF long /\ counts THEN [left EXCEPT ![c] = @ \cup {v}] ELSE left
          /\ unanimous' = [unanimous EXCEPT ![v] = FALSE]
       \/ /\ a.epoch = epoch[v]
          /\ role[v] \in {"Unattached", "Prospective"}
          /\ \/ /\ voted[v] = Nil /\ leader[v] = Nil /\ long
                /\ voted' = [voted EXCEPT ![v] = c]
             \/ /\ voted[v] = c /\ counts /\ v \notin votes[c]
                /\ Keeps("D21.compare") => long
                /\ UNCHANGED voted
          /\ count
          /\ UNCHANGED <<epoch, leader, role, unanimous, asks, stream, told, elected>>
    /\ UNCHANGED <<storage, known, faults, committed>>

(* core/elections/campaigning.py, decide; core/transitions.py, transition_to_leader: the epoch begins with a record. *)
OnVotesWon(c) ==
    /\ role[c] = "Candidate" /\ IsWon(c)
    /\ Len(log[c]) < MaxLen
    /\ Enter(c, "Leader", epoch[c], c, Nil, {},
             [elected EXCEPT ![epoch[c]] = [by |-> @.by \cup {c}, log |-> log[c]]])
    /\ Idle(c)
    /\ log' = [log EXCEPT ![c] = Append(@, epoch[c])]
    /\ phantom' = [phantom EXCEPT ![c] = IF unanimous[c] THEN NoPhantom ELSE @]
    /\ UNCHANGED <<disk, flushed, stale, known, faults, committed>>

(* core/responses.py, learn_from; core/transitions.py, maybe_transition: an answer names a higher epoch. *)
OnHigherEpoch(r, s) ==
    /\ With("higher epochs")
    /\ epoch[s] > epoch[r]
    /\ ToUnattached(r, epoch[s], Nil)
    /\ UNCHANGED <<storage, known, faults, committed>>

(* core/elections/on_begin_quorum_epoch.py, and any answer that names the leader. *)
OnBeginQuorumEpoch(r, l) ==
    /\ role[l] = "Leader" /\ r /= l
    /\ \/ epoch[r] < epoch[l]
       \/ epoch[r] = epoch[l] /\ role[r] \in {"Unattached", "Prospective", "Candidate"}
                              /\ leader[r] = Nil
    /\ Enter(r, "Follower", epoch[l], l, IF epoch[r] = epoch[l] THEN voted[r] ELSE Nil, {}, elected)
    /\ IF Keeps("I18") THEN Idle(r) ELSE UNCHANGED campaign
    /\ UNCHANGED <<storage, known, faults, committed>>

(* core/on_tick.py, resign; core/transitions.py, transition_to_resigned: without its quorum, or asked to. *)
OnResign(l) ==
    /\ With("resignations")
    /\ role[l] = "Leader"
    /\ Enter(l, "Resigned", epoch[l], l, voted[l], {}, elected)
    /\ Idle(l)
    /\ UNCHANGED <<storage, known, faults, committed>>

(* core/on_tick.py, poll_resigned. *)
OnResignedTimeout(r) ==
    /\ role[r] = "Resigned" /\ epoch[r] < MaxEpoch
    /\ ToUnattached(r, epoch[r] + 1, Nil)
    /\ UNCHANGED <<storage, known, faults, committed>>

-----------------------------------------------------------------------------
(* Replication. *)

(* core/replication/on_append.py, on_appended: in the page cache, not counted (D1). *)
OnAppended(l) ==
    /\ With("appends")
    /\ role[l] = "Leader" /\ Len(log[l]) < MaxLen
    /\ log' = [log EXCEPT ![l] = Append(@, epoch[l])]
    /\ UNCHANGED <<persistent, role, campaign, asks, disk, flushed, stale, phantom, stream, told,
                   known, faults, history>>

(* core/replication/on_flushed.py: a prefix is on disk, whatever the role. A follower acknowledges it (D3). *)
OnFlushed(r) ==
    /\ \E end \in flushed[r] + 1..Len(log[r]) :
        /\ With("partial flushes") \/ end = Len(log[r])
        /\ disk' = [disk EXCEPT ![r] = Max(@, end)]
        /\ flushed' = [flushed EXCEPT ![r] = end]
        /\ phantom' = [phantom EXCEPT ![r] = Covered(@, Prefix(log[r], end))]
        /\ told' = IF stream[r] THEN Tells(r, log[r], end) ELSE told
    /\ UNCHANGED <<persistent, role, campaign, asks, log, stale, stream, known, faults, history>>

(* core/log_view.py, flushed: a flush that began before a cut says nothing of what stands there
   now (D2). One that is heeded all the same only changes what the replica believes. *)
OnStaleFlushed(r) ==
    /\ ~Keeps("D2")
    /\ flushed[r] < stale[r] /\ stale[r] <= Len(log[r])
    /\ flushed' = [flushed EXCEPT ![r] = stale[r]]
    /\ told' = IF stream[r] THEN Tells(r, log[r], stale[r]) ELSE told
    /\ stale' = [stale EXCEPT ![r] = 0]
    /\ UNCHANGED <<persistent, role, campaign, asks, log, disk, phantom, stream, known, faults,
                   history>>

(* core/replication/fetching.py, open_stream; core/replication/on_fetch.py; core/replication/on_fetch_response.py, on_diverging. All of
   the follower's log is on disk when it asks (D3). The leader finds that it fits, or where it does
   not: it is cut there, never below what is known to be committed (I7); what is cut off is no
   longer flushed (D8), and gone from the disk before the next Fetch. *)
OnFetch(l, f) ==
    /\ Follows(f, l) /\ ~stream[f]
    /\ Keeps("D3") => IsDurable(f)
    /\ LET parts == IF Keeps("I3") THEN Validate(log[l], Len(log[f]), LastEpoch(log[f])) ELSE VALID
           cut == TruncationOffset(log[f], parts)
       IN \/ /\ parts = VALID
             /\ stream' = [stream EXCEPT ![f] = TRUE]
             /\ told' = Tells(f, log[f], flushed[f])
             /\ UNCHANGED storage
          \/ /\ parts /= VALID
             /\ known[f] <= cut /\ cut < Len(log[f])
             /\ log' = [log EXCEPT ![f] = Prefix(@, cut)]
             /\ disk' = [disk EXCEPT ![f] = Min(@, cut)]
             /\ flushed' = IF Keeps("D8") THEN [flushed EXCEPT ![f] = Min(@, cut)] ELSE flushed
             /\ stale' = IF Keeps("D2") THEN stale ELSE [stale EXCEPT ![f] = Len(log[f])]
             /\ UNCHANGED <<stream, told, phantom>>
    /\ UNCHANGED <<persistent, role, campaign, asks, known, faults, history>>

(* core/replication/on_fetch_response.py, accept; core/replication/on_fetched_written.py: the follower copies a record. *)
OnFetchedWritten(l, f) ==
    /\ Follows(f, l) /\ stream[f]
    /\ Len(log[f]) < Len(log[l])
    /\ log' = [log EXCEPT ![f] = Append(@, log[l][Len(log[f]) + 1])]
    /\ told' = Tells(f, log'[f], flushed[f])
    /\ UNCHANGED <<persistent, role, campaign, asks, disk, flushed, stale, phantom, stream, known,
                   faults, history>>

(* The epoch's commits are noted with the earliest epoch that made them (I4). *)
CommittedAfter(l, n) ==
    [o \in 1..Max(n, Len(committed)) |->
        IF o > Len(committed) THEN [epoch |-> log[l][o], by |-> epoch[l]]
        ELSE IF o <= n THEN [committed[o] EXCEPT !.by = Min(@, epoch[l])]
        ELSE committed[o]]

(* core/replication/on_fetch.py; core/replication/serving.py, acknowledge, acknowledge_self and maybe_update_high_watermark; core/replication/majority.pyx:
   a majority has it on disk, the leader counts its own disk alone (D1), and the record is of its
   own epoch (D6). *)
OnAcknowledged(l) ==
    /\ role[l] = "Leader"
    /\ \E n \in (IF Keeps("I6") THEN known[l] ELSE 0) + 1..Len(log[l]) :
        /\ LET own == IF Keeps("D1") THEN flushed[l] ELSE Len(log[l])
           IN IsMajority({s \in Server : (IF s = l THEN own ELSE told[l][s]) >= n})
        /\ Keeps("D6") => log[l][n] = epoch[l]
        /\ known' = [known EXCEPT ![l] = n]
        /\ committed' = CommittedAfter(l, n)
    /\ UNCHANGED <<persistent, role, campaign, asks, storage, stream, told, faults, elected>>

(* core/replication/on_fetch_response.py, learn_high_watermark. *)
OnHighWatermark(l, f) ==
    /\ With("high watermarks")
    /\ Follows(f, l) /\ stream[f]
    /\ Min(known[l], Len(log[f])) > known[f]
    /\ known' = [known EXCEPT ![f] = Min(known[l], Len(log[f]))]
    /\ UNCHANGED <<persistent, role, campaign, asks, storage, stream, told, faults, history>>

-----------------------------------------------------------------------------
(* Faults. *)

(* core/replica.py, _first_role: a leader comes back resigned (D4); a candidate unattached, with
   its own vote kept (D21). *)
FirstRole(r, l, newAsks) ==
    LET leads == leader[r] = r
        asks_on == ~Keeps("D21.resume") /\ leader[r] = Nil /\ voted[r] = r
        again == [from |-> r, epoch |-> epoch[r], end |-> End(l), all |-> FALSE, live |-> TRUE]
        first == IF leads THEN IF Keeps("D4") THEN "Resigned" ELSE "Leader"
                 ELSE IF leader[r] /= Nil THEN "Follower"
                 ELSE IF asks_on THEN "Candidate" ELSE "Unattached"
    IN /\ Enter(r, first, epoch[r], leader[r], IF Keeps("D5") THEN voted[r] ELSE Nil,
                newAsks \cup IF asks_on THEN {again} ELSE {}, elected)
       /\ votes' = [votes EXCEPT ![r] = IF asks_on THEN {r} ELSE {}]
       /\ unanimous' = [unanimous EXCEPT ![r] = FALSE]

Restart(r, l, newAsks) ==
    /\ restarts < MaxRestarts
    /\ restarts' = restarts + 1
    /\ FirstRole(r, l, newAsks)
    /\ log' = [log EXCEPT ![r] = l]
    /\ known' = [known EXCEPT ![r] = 0]
    /\ stale' = [stale EXCEPT ![r] = 0]
    /\ UNCHANGED committed

(* The process ends and starts again; the page cache survives. *)
OnKilled(r) ==
    /\ With("kills")
    /\ Restart(r, log[r], {})
    /\ flushed' = [flushed EXCEPT ![r] = disk[r]]
    /\ UNCHANGED <<disk, phantom, damaged>>

(* Any suffix of what is not on disk is lost; what is read at the start is on disk. *)
PowerCut(r, newAsks) ==
    /\ \E keep \in disk[r]..Len(log[r]) :
        /\ Restart(r, Prefix(log[r], keep), newAsks)
        /\ disk' = [disk EXCEPT ![r] = keep]
        /\ flushed' = [flushed EXCEPT ![r] = keep]
        /\ phantom' = [phantom EXCEPT ![r] = Covered(@, Prefix(log[r], keep))]
    /\ UNCHANGED damaged

OnPowerCut(r) == PowerCut(r, {})

(* The requests of a candidate leave while its own vote is still being written (request_votes):
   power goes in between, and they are judged although the candidacy is not on disk. *)
OnPowerCutWhileAsking(c) ==
    /\ MayCampaign(c)
    /\ PowerCut(c, {[Ask(c) EXCEPT !.live = FALSE]})

(* Records that were flushed are found damaged: the log ends before them, and a mark says how far
   it may have acknowledged (D10). *)
OnDamage(r) ==
    /\ damaged < MaxDamaged
    /\ damaged' = damaged + 1
    /\ \E keep \in 0..disk[r] - 1 :
        /\ Restart(r, Prefix(log[r], keep), {})
        /\ disk' = [disk EXCEPT ![r] = keep]
        /\ flushed' = [flushed EXCEPT ![r] = keep]
    /\ LET mark == End(Prefix(log[r], disk[r]))
       IN phantom' = [phantom EXCEPT ![r] =
                        IF ~Keeps("D10") \/ AtLeast(@, mark) THEN @ ELSE mark]

-----------------------------------------------------------------------------
InitWith(firstRole, firstEpoch, firstLeader, firstLog, streaming) ==
    /\ epoch = [r \in Server |-> firstEpoch]
    /\ leader = [r \in Server |-> firstLeader]
    /\ voted = [r \in Server |-> Nil]
    /\ role = firstRole
    /\ votes = [r \in Server |-> {}]
    /\ unanimous = [r \in Server |-> FALSE]
    /\ asks = {}
    /\ log = firstLog
    /\ disk = [r \in Server |-> 0]
    /\ flushed = [r \in Server |-> 0]
    /\ stale = [r \in Server |-> 0]
    /\ phantom = [r \in Server |-> NoPhantom]
    /\ stream = streaming
    /\ told = [r \in Server |-> [s \in Server |-> 0]]
    /\ known = [r \in Server |-> 0]
    /\ restarts = 0 /\ damaged = 0
    /\ committed = <<>>
    /\ elected = [e \in 1..MaxEpoch |->
                    [by |-> IF e = firstEpoch THEN {firstLeader} ELSE {}, log |-> Forgotten]]

(* A new quorum. *)
Init ==
    InitWith([r \in Server |-> "Unattached"], 0, Nil, [r \in Server |-> <<>>],
             [r \in Server |-> FALSE])

(* The same after its first election: all follow the leader of epoch 1, which has appended the
   record that its epoch begins with. *)
InitLed ==
    \E l \in Server :
        InitWith([r \in Server |-> IF r = l THEN "Leader" ELSE "Follower"], 1, l,
                 [r \in Server |-> IF r = l THEN <<1>> ELSE <<>>], [r \in Server |-> r /= l])

Next ==
    \/ \E r \in Server :
        \/ OnElectionTimeout(r) \/ OnStandDown(r) \/ OnPreVotesWon(r) \/ OnVotesWon(r)
        \/ OnResign(r) \/ OnResignedTimeout(r)
        \/ OnAppended(r) \/ OnFlushed(r) \/ OnStaleFlushed(r) \/ OnAcknowledged(r)
        \/ OnKilled(r) \/ OnPowerCut(r) \/ OnPowerCutWhileAsking(r) \/ OnDamage(r)
        \/ \E a \in asks : OnVote(r, a)
        \/ \E s \in Server \ {r} :
            \/ OnPreVote(r, s) \/ OnHigherEpoch(r, s) \/ OnBeginQuorumEpoch(r, s)
            \/ OnFetch(r, s) \/ OnFetchedWritten(r, s) \/ OnHighWatermark(r, s)

Spec == Init /\ [][Next]_vars
SpecLed == InitLed /\ [][Next]_vars

(* For a search that must go deep: what was appended is flushed before anything else happens, and
   nothing comes between the decision to campaign and the campaign. *)
Hurried ==
    IF \E r \in Server : ~IsDurable(r) THEN flushed' /= flushed
    ELSE (\E r \in Server : role[r] = "Prospective") => role' /= role

-----------------------------------------------------------------------------
(* What must hold. *)

Has(l, o) == o <= Len(l) /\ l[o] = committed[o].epoch

(* I1: one leader in an epoch. *)
ElectionSafety == \A e \in 1..MaxEpoch : Cardinality(elected[e].by) <= 1

(* I2, I3: a record is known by its offset and epoch, and so is all before it. *)
LogMatching ==
    \A r, s \in Server : \A o \in 1..Min(Len(log[r]), Len(log[s])) :
        log[r][o] = log[s][o] => Prefix(log[r], o) = Prefix(log[s], o)

(* I2: a leader has every record of its epoch. *)
LeaderHasItsEpoch ==
    \A l, r \in Server : role[l] = "Leader" =>
        \A o \in 1..Len(log[r]) :
            log[r][o] = epoch[l] => o <= Len(log[l]) /\ log[l][o] = epoch[l]

(* I4: a leader has what any epoch before its own committed, also if that became known after its
   election; and what its own epoch committed. *)
LeaderCompleteness ==
    \A o \in 1..Len(committed) :
        /\ \A l \in Server : role[l] = "Leader" /\ committed[o].by <= epoch[l] => Has(log[l], o)
        /\ \A e \in 1..MaxEpoch :
            committed[o].by < e /\ elected[e].log /= Forgotten => Has(elected[e].log, o)

(* I5: what is committed is on the disks of a majority, where a replica counts that may have lost
   it and knows so (D10). *)
Durability ==
    \A o \in 1..Len(committed) :
        IsMajority({r \in Server :
            \/ o <= disk[r] /\ Has(log[r], o)
            \/ InDoubt(r) /\ AtLeast(phantom[r], <<committed[o].epoch, o>>)})

(* I6, I8: what a replica takes for committed is, and is the same everywhere. *)
KnownIsCommitted ==
    \A r \in Server : \A o \in 1..known[r] : o <= Len(committed) /\ Has(log[r], o)

(* I6: it never falls while a process lives, nor does what was ever committed. *)
HighWatermarkMonotone ==
    [][/\ \A r \in Server : known'[r] >= known[r] \/ restarts' > restarts
       /\ Len(committed') >= Len(committed)]_vars

(* I7: no leader asks a follower to cut what an epoch before its own committed. *)
NoCutBelowCommitted ==
    \A l, f \in Server : Follows(f, l) /\ ~stream[f] =>
        LET parts == Validate(log[l], Len(log[f]), LastEpoch(log[f]))
        IN parts /= VALID =>
            /\ known[f] <= TruncationOffset(log[f], parts)
            /\ \A o \in TruncationOffset(log[f], parts) + 1..Len(committed) :
                committed[o].by < epoch[l] => ~Has(log[f], o)

(* I11, I12: nobody believes to have more on disk than there is. *)
FlushedIsOnDisk == \A r \in Server : flushed[r] <= disk[r] /\ disk[r] <= Len(log[r])

(* I21: a replica in doubt neither leads nor asks for anything but a unanimous election. *)
DoubtIsHeeded ==
    \A r \in Server : InDoubt(r) =>
        role[r] /= "Leader" /\ (role[r] \in {"Prospective", "Candidate"} => unanimous[r])

(* The roles of core/roles.py, and what belongs to them. *)
TypeOK ==
    \A r \in Server :
        /\ role[r] \in {"Unattached", "Prospective", "Candidate", "Leader", "Follower", "Resigned"}
        /\ role[r] \in {"Leader", "Resigned"} <=> leader[r] = r
        /\ role[r] = "Follower" => leader[r] \notin {Nil, r}
        /\ role[r] = "Candidate" => leader[r] = Nil /\ voted[r] = r
        /\ (r \in votes[r]) <=> role[r] \in {"Prospective", "Candidate"}
        /\ LastEpoch(log[r]) <= epoch[r] /\ known[r] <= Len(log[r])
        /\ stream[r] => role[r] = "Follower"
=============================================================================
