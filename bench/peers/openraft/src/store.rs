//! The log on `raft-log`, whose worker thread flushes whatever has queued at once (group commit),
//! and a state machine that only counts.
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use openraft::alias::{EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf};
use openraft::storage::{EntryResponder, IOFlushed, LogState, RaftLogStorage, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftLogReader, RaftSnapshotBuilder, StoredMembership};
use raft_log::RaftLog;
use raft_log::api::raft_log_writer::RaftLogWriter;
use tokio::sync::oneshot;

use crate::Types;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records;

impl raft_log::Types for Records {
    type LogId = (u64, u64); // term, index: leader ids are unique per term
    type LogPayload = Vec<u8>;
    type Vote = (u64, u64); // term, node << 1 | committed
    type Callback = Done;
    type UserData = String;

    fn log_index(id: &Self::LogId) -> u64 {
        id.1
    }
    fn payload_size(payload: &Self::LogPayload) -> u64 {
        payload.len() as u64
    }
}

pub enum Done {
    Entries(IOFlushed<Types>),
    Other(oneshot::Sender<io::Result<()>>),
}

impl raft_log::Callback for Done {
    fn send(self, result: io::Result<()>) {
        match self {
            Done::Entries(flushed) => flushed.io_completed(result),
            Done::Other(waiter) => drop(waiter.send(result)),
        }
    }
}

#[derive(Clone)]
pub struct Log {
    log: Arc<Mutex<RaftLog<Records>>>,
    vote: Arc<Mutex<Option<VoteOf<Types>>>>,
    last: Arc<Mutex<Option<LogIdOf<Types>>>>,
    sync: bool,
}

impl Log {
    pub fn open(dir: &Path, sync: bool) -> io::Result<Self> {
        let mut config = raft_log::Config::new(dir.display());
        config.wal.flush_batch_wait = Some(Duration::ZERO); // its default waits up to 1 ms for more
        let log = RaftLog::open(Arc::new(config))?;
        Ok(Log {
            log: Arc::new(Mutex::new(log)),
            vote: Arc::default(),
            last: Arc::default(),
            sync,
        })
    }

    async fn change(
        &self,
        apply: impl FnOnce(&mut RaftLog<Records>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (sender, done) = oneshot::channel();
        {
            let mut log = self.log.lock().unwrap();
            apply(&mut log).and_then(|()| log.flush(self.sync, Some(Done::Other(sender))))?;
        }
        done.await.map_err(io::Error::other)?
    }
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<EntryOf<Types>>> {
        let from = match range.start_bound() {
            Bound::Included(i) => *i,
            Bound::Excluded(i) => i + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(i) => i + 1,
            Bound::Excluded(i) => *i,
            Bound::Unbounded => u64::MAX,
        };
        let log = self.log.lock().unwrap();
        log.read(from, to)
            .map(|r| {
                r.and_then(|(_, bytes)| bincode::deserialize(&bytes).map_err(io::Error::other))
            })
            .collect()
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<Types>>> {
        Ok(*self.vote.lock().unwrap())
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        Ok(LogState {
            last_purged_log_id: None,
            last_log_id: *self.last.lock().unwrap(),
        })
    }

    async fn get_log_reader(&mut self) -> Log {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<Types>) -> io::Result<()> {
        *self.vote.lock().unwrap() = Some(*vote);
        let pair = (
            vote.leader_id.term,
            vote.leader_id.node_id << 1 | vote.committed as u64,
        );
        self.change(|log| log.save_vote(pair).map(drop)).await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = EntryOf<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut last = None;
        let mut rows = vec![];
        for entry in entries {
            last = Some(entry.log_id);
            let bytes = bincode::serialize(&entry).map_err(|e| io::Error::other(e))?;
            rows.push(((entry.log_id.leader_id.term, entry.log_id.index), bytes));
        }
        *self.last.lock().unwrap() = last;
        let mut log = self.log.lock().unwrap();
        log.append(rows)?;
        log.flush(self.sync, Some(Done::Entries(callback)))
    }

    async fn truncate_after(&mut self, last: Option<LogIdOf<Types>>) -> io::Result<()> {
        *self.last.lock().unwrap() = last;
        self.change(|log| log.truncate(last.map_or(0, |id| id.index + 1)).map(drop))
            .await
    }

    async fn purge(&mut self, id: LogIdOf<Types>) -> io::Result<()> {
        self.change(|log| log.purge((id.leader_id.term, id.index)).map(drop))
            .await
    }
}

/// Counts the entries that carry a proposal.
pub struct Counter {
    applied: Arc<AtomicU64>,
    last: Option<LogIdOf<Types>>,
    membership: StoredMembershipOf<Types>,
}

impl Counter {
    pub fn new(applied: Arc<AtomicU64>) -> Self {
        Counter {
            applied,
            last: None,
            membership: StoredMembership::default(),
        }
    }
}

impl RaftStateMachine<Types> for Counter {
    type SnapshotData = ();
    type SnapshotBuilder = NoSnapshots;

    async fn applied_state(
        &mut self,
    ) -> io::Result<(Option<LogIdOf<Types>>, StoredMembershipOf<Types>)> {
        Ok((self.last, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            self.last = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Normal(_) => drop(self.applied.fetch_add(1, Ordering::Relaxed)),
                EntryPayload::Membership(m) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), m)
                }
                EntryPayload::Blank => {}
            }
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> NoSnapshots {
        NoSnapshots
    }
    async fn install_snapshot(&mut self, _: &SnapshotMetaOf<Types>, _: ()) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types, ()>>> {
        Ok(None)
    }
}

pub struct NoSnapshots;

impl RaftSnapshotBuilder<Types> for NoSnapshots {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types, ()>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
