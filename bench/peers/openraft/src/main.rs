//! openraft measures the `openraft` crate on `raft-log`, which its authors use in production.
//!
//! The voters are three processes that exchange bincode frames over loopback TCP; voter 1 and the
//! client share the parent.
mod network;
mod store;

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use openraft::{BasicNode, Raft, SnapshotPolicy};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// What the client proposes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Proposal(ByteBuf);

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

openraft::declare_raft_types!(pub Types: D = Proposal, R = ());
type Node = Raft<Types, store::Counter>;

const VERSION: &str = "0.10.0-alpha.37, raft-log 0.4.6"; // as Cargo.toml has them
const VOTERS: u64 = 3;
type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Options {
    dir: PathBuf,
    value_bytes: usize,
    mode: String,
    window: usize,
    seconds: f64,
    sync: bool,
    voter: u64,
    ports: Vec<u16>,
}

impl Options {
    fn parse() -> Result<Self, Failure> {
        let mut o = Options {
            dir: PathBuf::new(),
            value_bytes: 100,
            mode: "latency".into(),
            window: 1024,
            seconds: 10.0,
            sync: true,
            voter: 1,
            ports: vec![],
        };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            if name == "--no-sync" {
                o.sync = false;
                continue;
            }
            let value = args.next().ok_or(format!("{name} needs a value"))?;
            match name.as_str() {
                "--dir" => o.dir = value.into(),
                "--value-bytes" => o.value_bytes = value.parse()?,
                "--mode" => o.mode = value,
                "--window" => o.window = value.parse()?,
                "--seconds" => o.seconds = value.parse()?,
                "--voter" => o.voter = value.parse()?,
                "--ports" => {
                    o.ports = value.split(',').map(str::parse).collect::<Result<_, _>>()?
                }
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        if o.mode == "latency" {
            o.window = 1;
        } else if o.mode != "throughput" {
            return Err(format!("no mode {}", o.mode).into());
        }
        if o.ports.is_empty() {
            let held: Vec<_> = (0..VOTERS)
                .map(|_| TcpListener::bind("127.0.0.1:0"))
                .collect::<Result<_, _>>()?;
            o.ports = held
                .iter()
                .map(|l| Ok(l.local_addr()?.port()))
                .collect::<Result<_, std::io::Error>>()?;
        }
        Ok(o)
    }

    fn address(&self, voter: u64) -> String {
        format!("127.0.0.1:{}", self.ports[voter as usize - 1])
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let o = Options::parse()?;
    let dir = o.dir.join(format!("openraft-{}", o.voter));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    let mut others = if o.voter == 1 {
        (2..=VOTERS)
            .map(|i| Other::spawn(&o, i))
            .collect::<Result<_, _>>()?
    } else {
        vec![]
    };

    let applied = Arc::new(AtomicU64::new(0));
    let config = openraft::Config {
        heartbeat_interval: 200,
        election_timeout_min: 1000,
        election_timeout_max: 2000,
        max_payload_entries: 4096,
        snapshot_policy: SnapshotPolicy::Never,
        ..Default::default()
    };
    let log = store::Log::open(&dir, o.sync)?;
    let raft = Raft::new(
        o.voter,
        Arc::new(config.validate()?),
        network::Connector,
        log,
        store::Counter::new(applied.clone()),
    )
    .await?;
    tokio::spawn(network::serve(
        tokio::net::TcpListener::bind(o.address(o.voter)).await?,
        raft.clone(),
    ));

    if o.voter == 1 {
        lead(&o, &raft).await?;
        measure(&o, &raft, &applied, &mut others).await?;
    } else {
        for line in std::io::stdin().lines() {
            println!("{}", wait_applied(&applied, line?.parse()?).await);
        }
    }
    drop(others);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

async fn lead(o: &Options, raft: &Node) -> Result<(), Failure> {
    for i in 2..=VOTERS {
        while tokio::net::TcpStream::connect(o.address(i)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let members: std::collections::BTreeMap<_, _> = (1..=VOTERS)
        .map(|i| (i, BasicNode::new(o.address(i))))
        .collect();
    raft.initialize(members).await?;
    raft.wait(Some(Duration::from_secs(30)))
        .current_leader(1, "voter 1 leads")
        .await?;
    for _ in 0..300 {
        if raft.write_blank().await.is_ok() {
            return Ok(()); // its lease began when a majority answered
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("voter 1 cannot write".into())
}

async fn measure(
    o: &Options,
    raft: &Node,
    applied: &AtomicU64,
    others: &mut [Other],
) -> Result<(), Failure> {
    let mut seed = 0x9e3779b97f4a7c15_u64;
    let entry: Vec<u8> = (0..o.value_bytes)
        .map(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .collect();
    let entry = Proposal(ByteBuf::from(entry));
    let (warm, _) = drive(raft, &entry, o.window, 1.0).await?;
    let (mut lat, seconds) = drive(raft, &entry, o.window, o.seconds).await?;
    let want = (warm.len() + lat.len()) as u64;
    let mut verified = wait_applied(applied, want).await == want;
    for other in others {
        verified &= other.applied(want)? == want;
    }
    lat.sort_unstable();
    let records = lat.len();
    if records == 0 {
        return Err("nothing was acknowledged".into());
    }
    let (fsync, survives) = match o.sync {
        true => (
            "fdatasync of raft-log, grouped",
            "a power cut of all voters",
        ),
        false => ("none", "the loss of one voter, no power cut"),
    };
    let at = |q: f64| lat[(q * (lat.len() - 1) as f64) as usize].as_nanos() as f64 / 1000.0;
    let line = serde_json::json!({
        "peer": "openraft", "version": VERSION, "voters": VOTERS, "processes": VOTERS,
        "client": "in the leader", "sync": o.sync, "fsync": fsync, "survives": survives,
        "value_bytes": o.value_bytes, "mode": o.mode, "window": o.window, "seconds": seconds,
        "records": records, "records_per_s": records as f64 / seconds,
        "p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999), "max_us": at(1.0),
        "verified": verified,
    });
    println!("{line}");
    Ok(())
}

/// Keep `window` entries outstanding, one per task, and return the time that each took to commit.
async fn drive(
    raft: &Node,
    entry: &Proposal,
    window: usize,
    seconds: f64,
) -> Result<(Vec<Duration>, f64), Failure> {
    let start = Instant::now();
    let tasks: Vec<_> = (0..window)
        .map(|_| {
            let (raft, entry) = (raft.clone(), entry.clone());
            tokio::spawn(async move {
                let mut lat = vec![];
                while start.elapsed().as_secs_f64() < seconds {
                    let at = Instant::now();
                    raft.client_write(entry.clone()).await?;
                    lat.push(at.elapsed());
                }
                Ok::<_, Failure>(lat)
            })
        })
        .collect();
    let mut all = vec![];
    for task in tasks {
        all.append(&mut task.await??);
    }
    Ok((all, start.elapsed().as_secs_f64()))
}

async fn wait_applied(applied: &AtomicU64, want: u64) -> u64 {
    for _ in 0..3000 {
        if applied.load(Ordering::Relaxed) >= want {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    applied.load(Ordering::Relaxed)
}

/// A voter in a child process; it ends when its standard input closes.
struct Other {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn spawn(o: &Options, voter: u64) -> Result<Self, Failure> {
        let ports: Vec<_> = o.ports.iter().map(u16::to_string).collect();
        let mut child = Command::new(std::env::current_exe()?)
            .args(std::env::args().skip(1))
            .args(["--voter", &voter.to_string(), "--ports", &ports.join(",")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(Other { child, out })
    }

    fn applied(&mut self, want: u64) -> Result<u64, Failure> {
        writeln!(self.child.stdin.as_mut().ok_or("no stdin")?, "{want}")?;
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        Ok(line.trim().parse()?)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
