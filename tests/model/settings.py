"""What is searched: quorums of several kinds, by name, each with what may go wrong in it."""

from __future__ import annotations

SETTINGS = {
    "rings": "--faults 2 --appends 3 --timers 5",
    "sockets": "--sockets --faults 3 --appends 3 --timers 5",
    "short answers": "--sockets --turn-records 1 --faults 1 --appends 4 --timers 5",
    "five voters": "--voters 5 --crashes 3 --faults 2 --timers 5 --length 90",
    "voters change": "--dynamic --observers 1 --admin 4 --timers 5 --crashes 1 --length 80",
    "voters change, sockets": "--dynamic --observers 1 --admin 4 --sockets --faults 1 --length 80",
    "replaced disks": "--dynamic --wipes empty,alone --admin 3 --timers 5 --length 80",
    "replaced observers": "--dynamic --voters 1 --observers 1 --wipes empty --admin 4 --length 60",
    "replaced disks, sockets": "--dynamic --sockets --wipes empty --admin 4 --faults 1 --length 80",
    "replaced observers, sockets": "--dynamic --sockets --voters 1 --observers 1 --wipes empty "
    "--snapshots 2 --admin 4 --crashes 1 --appends 1 --timers 0 --length 60",
    "replaced leader": "--dynamic --wipes empty --admin 1 --timers 3 --crashes 3 --appends 2",
    "old configuration": "--upgraded --voters 1 --observers 2 --sockets --wipes empty --admin 2 "
    "--crashes 3 --timers 6 --appends 1 --turn-records 1 --length 80",
    "old configurations": "--upgraded --wipes empty --hurt-max 2 --floors 3 --admin 2 --crashes 4 "
    "--timers 6 --appends 1 --turn-records 1 --length 80",
    "emptied majority": "--wipes empty --emptied 2,3 --hurt-max 2 --floors 1 --snapshots 2 "
    "--crashes 1 --timers 5 --appends 1",
    "observer joins": "--dynamic --auto-join --voters 2 --observers 1 --snapshots 3 --admin 1 "
    "--crashes 0",
    "two dynamic voters": "--dynamic --voters 2 --observers 1 --admin 2 --timers 3 --crashes 1 "
    "--appends 1 --liveness 2",
    "full voter set": "--dynamic --voters-max 3 --observers 1 --admin 3 --crashes 1 --length 80",
    "upgrades": "--upgrades --admin 2 --timers 5 --faults 1",
    "upgrades, one voter": "--upgrades --voters 1 --observers 1 --admin 2 --crashes 2",
    "upgrade without a voter": "--upgrades --begin upgrade-without-3 --turn-records 1 --faults 1 "
    "--timers 3 --appends 1 --liveness 2",
    "undone removal": "--dynamic --begin undone-removal --crashes 1 --appends 0 --length 40",
    "older tail": "--begin older-tail --faults 1 --timers 3 --appends 0",
    "damaged log": "--begin damaged-log --crashes 1 --timers 3 --appends 1",
    "unflushed follower": "--sockets --begin unflushed-follower --crashes 1 --appends 0 "
    "--timers 3 --length 40",
    "new disk": "--dynamic --voters 1 --observers 1 --wipes empty --begin new-disk --admin 2 "
    "--crashes 1 --timers 2 --appends 1 --length 40",
    "new disk, sockets": "--dynamic --sockets --voters 1 --observers 1 --wipes empty "
    "--begin new-disk --admin 2 --crashes 0 --timers 2 --appends 1 --length 40",
    "beside its quorum": "--upgraded --voters 1 --observers 2 --sockets --wipes empty "
    "--begin beside-its-quorum --turn-records 1 --crashes 0 --appends 3",
    "part of a log": "--upgraded --voters 1 --observers 2 --sockets --wipes empty --asks "
    "--begin part-of-a-log --turn-records 1 --crashes 1 --appends 0 --timers 2 --length 30",
    "two new disks": "--upgraded --wipes empty --hurt-max 2 --begin two-new-disks --appends 0",
    "first election": "--first --crashes 2 --faults 1 --timers 6",
    "lies": "--upgrades --lies --crashes 0 --faults 1 --timers 3 --length 120",
    "cut upgrades": "--upgrades --lies --crashes 0 --faults 0 --timers 3 --length 120",
    "snapshots": "--snapshots 4 --appends 4",
    "snapshots, sockets": "--sockets --snapshots 4 --appends 4 --faults 1 --length 80",
    "installs": "--snapshots 4 --appends 3 --wipes empty --admin 1 --crashes 1 --timers 0",
    "installs, observer": "--voters 1 --observers 1 --snapshots 3 --wipes empty --admin 1",
    "installs, sockets": "--sockets --voters 1 --observers 1 --snapshots 3 --wipes empty --admin 1",
    "moved voters": "--dynamic --moved 2 --observers 1 --admin 2 --timers 6 --length 80",
    "reads": "--reads 9 --faults 1 --timers 6",
    "reads, no crashes": "--reads 9 --faults 2 --crashes 0 --timers 4 --appends 1",
    "reads, sockets": "--reads 9 --sockets --faults 2 --timers 6",
    "reads, again": "--reads 2 --sockets --begin read-barrier --faults 1 --crashes 0 --timers 3 "
    "--appends 0",
    "reads, observer": "--reads 9 --sockets --observers 1 --faults 3 --crashes 0 --timers 6",
    "reads, removed leader": "--dynamic --voters 4 --reads 4 --begin removed-leader --faults 3 "
    "--crashes 0 --timers 6 --appends 1 --admin 0",
    "strangers": "--strangers --faults 3 --timers 4",
    "damage, short": "--faults 2 --crashes 3 --timers 4 --appends 2",
    "damage": "--faults 3 --crashes 4 --timers 6 --appends 3 --length 80",
    "floors": "--floors 1 --sockets --hurt-max 2 --crashes 4 --faults 4 --timers 6 --length 80",
    "one voter": "--voters 1 --observers 1 --appends 3 --crashes 3",
    "two voters": "--voters 2 --observers 1 --appends 3 --faults 2 --timers 5",
    "witness": "--witnesses 3 --faults 1 --timers 5",
    "witness, sockets": "--witnesses 3 --sockets --faults 1 --timers 5",
    "memory": "--memory 3 --witnesses 3 --faults 1 --timers 5 --appends 3",
    "memory alone": "--memory 1,2,3 --first --faults 1 --timers 6 --appends 1",
    "memory, snapshots": "--memory 1,2,3 --first --snapshots 2 --timers 6 --appends 2",
    "memory alone, witness": "--memory 1,2,3 --witnesses 3 --first --timers 6 --appends 1",
}
"""Names, and words of ``python -m tests.model``."""
