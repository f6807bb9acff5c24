/* The ring and its doorbells (cext/ring.c, cext/worker.c) as a Promela model for Spin.
 *
 * A producer sends messages through a ring of SLOTS to a loop that sleeps when it has nothing to
 * do; a flusher thread rings the same doorbell; the producer sleeps when there is no room. Each
 * access to a shared word is one step, and steps interleave in any order: that is what seq_cst
 * gives for the words of R12 (heads, tails, flags, states). Where the code batches, the model may:
 * several commits a publish, several releases a tail.
 *
 * What must hold in every run:
 *   - messages arrive in order, none twice, and a slot stays as it is until it is released;
 *   - the cursors never differ by more than the ring holds (R7);
 *   - nobody waits for ever: a wake-up that is lost is a state with no next step, which Spin
 *     reports as an invalid end state (R12).
 *
 *   spin -a ring.pml && cc -O2 -DSAFETY -o pan pan.c && ./pan
 */
#define SLOTS 2
#define MESSAGES 5
#define JOBS 2

/* In the producer's file, its consumer's, and each sleeper's doorbell page. */
byte slot[SLOTS];
byte head;
bit want_room;
byte tail;
bit sleeping[2];
bit rung[2]; /* the pipes: readable or not */
#define LOOP 0
#define PRODUCER 1

mtype = { idle, asked, done };
mtype flusher_state = idle;

/* kf_doorbell_ring: the flag is looked at, then the pipe is written. */
inline ring(who, flag) {
    flag = sleeping[who];
    if
    :: flag -> rung[who] = 1
    :: else
    fi;
    flag = 0 /* a value that is not needed any more makes no states */
}

/* The wait on the pipe: it ends when somebody wrote, and takes that. */
inline wait(who) {
    atomic { rung[who] -> rung[who] = 0 }
}

/* kf_ring_publish: an exchange, at once visible to all. */
inline publish(value) {
    head = value
}

active proctype producer() {
    byte sent = 0;        /* committed */
    byte tail_cached = 0;
    bit flag;

    do
    :: sent < MESSAGES ->
        if
        :: sent - tail_cached >= SLOTS -> tail_cached = tail
        :: else
        fi;
        assert(tail_cached <= sent);
        if
        :: sent - tail_cached < SLOTS ->
            want_room = 0;
            slot[sent % SLOTS] = sent + 1;
            sent++;
            if
            :: publish(sent);
               ring(LOOP, flag)
            :: skip /* commits more before it publishes */
            fi
        :: else -> /* kf_ring_want_room, sleep, re-check, wait */
            publish(sent);
            want_room = 1;
            ring(LOOP, flag);
            sleeping[PRODUCER] = 1;
            tail_cached = tail;
            if
            :: sent - tail_cached >= SLOTS -> wait(PRODUCER)
            :: else
            fi;
            sleeping[PRODUCER] = 0
        fi
    :: else -> break
    od;
    publish(sent);
    ring(LOOP, flag)
}

/* kf_ring_publish_tail, and the ring that its caller owes. */
inline publish_tail(value, flag) {
    if
    :: tail != value ->
        tail = value;
        flag = want_room;
        if
        :: flag -> ring(PRODUCER, flag)
        :: else
        fi
    :: else
    fi
}

active proctype loop() {
    byte received = 0;    /* released */
    byte head_cached = 0;
    byte jobs = 0;        /* flushes that ended */
    bit flag;

    do
    :: received < MESSAGES || jobs < JOBS ->
        if /* kf_worker_take */
        :: flusher_state == done -> flusher_state = idle; jobs++
        :: else
        fi;
        if /* kf_worker_ask */
        :: flusher_state == idle && jobs < JOBS -> flusher_state = asked
        :: else
        fi;
        if
        :: head_cached == received -> head_cached = head
        :: else
        fi;
        assert(head_cached >= received && head_cached - received <= SLOTS);
        if
        :: head_cached > received ->
            assert(slot[received % SLOTS] == received + 1); /* peek */
            assert(slot[received % SLOTS] == received + 1); /* and it stays until release */
            received++;
            if
            :: publish_tail(received, flag)
            :: skip /* releases more before it says so */
            fi
        :: else ->
            publish_tail(received, flag);
            if
            :: received == MESSAGES && jobs == JOBS -> skip
            :: else ->
                sleeping[LOOP] = 1;
                head_cached = head; /* re-check everything that rings this doorbell */
                if
                :: head_cached == received && flusher_state != done -> wait(LOOP)
                :: else
                fi;
                sleeping[LOOP] = 0
            fi
        fi
    :: else -> break
    od
}

active proctype flusher() {
    bit flag;
end: /* it may wait for a job for ever */
    do
    :: flusher_state == asked ->
        flusher_state = done;
        ring(LOOP, flag)
    od
}
