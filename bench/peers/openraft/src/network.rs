//! Raft's messages as length-prefixed bincode frames; one connection for each follower, one request
//! on it at a time, which is openraft's default stream of appends.
use std::io;

use openraft::alias::{SnapshotOf, VoteOf};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{Node, Types};

#[derive(Serialize, Deserialize)]
enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
}

async fn send<T: Serialize>(stream: &mut TcpStream, message: &T) -> io::Result<()> {
    let mut frame = vec![0; 4];
    bincode::serialize_into(&mut frame, message).map_err(io::Error::other)?;
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&frame).await
}

async fn receive<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let mut frame = vec![0; stream.read_u32_le().await? as usize];
    stream.read_exact(&mut frame).await?;
    bincode::deserialize(&frame).map_err(io::Error::other)
}

pub async fn serve(listener: TcpListener, raft: Node) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let raft = raft.clone();
        tokio::spawn(async move {
            while let Ok(request) = receive(&mut stream).await {
                match request {
                    Request::Append(r) => {
                        send(
                            &mut stream,
                            &raft.append_entries(r).await.map_err(|e| e.to_string()),
                        )
                        .await?
                    }
                    Request::Vote(r) => {
                        send(&mut stream, &raft.vote(r).await.map_err(|e| e.to_string())).await?
                    }
                }
            }
            Ok::<_, io::Error>(())
        });
    }
}

pub struct Connector;

impl RaftNetworkFactory<Types> for Connector {
    type Network = Connection;

    async fn new_client(&mut self, _: u64, node: &BasicNode) -> Connection {
        Connection {
            address: node.addr.clone(),
            stream: None,
        }
    }
}

pub struct Connection {
    address: String,
    stream: Option<TcpStream>,
}

type Rpc<T> = Result<T, RPCError<Types>>;

impl Connection {
    async fn exchange<T: DeserializeOwned>(&mut self, request: &Request) -> io::Result<T> {
        let mut stream = match self.stream.take() {
            Some(s) => s,
            None => TcpStream::connect(&self.address).await?,
        };
        stream.set_nodelay(true)?;
        send(&mut stream, request).await?;
        let reply = receive(&mut stream).await?;
        self.stream = Some(stream);
        Ok(reply)
    }

    async fn call<T: DeserializeOwned>(&mut self, request: Request) -> Rpc<T> {
        let reply = self.exchange::<Result<T, String>>(&request).await;
        reply
            .and_then(|r| r.map_err(io::Error::other))
            .map_err(|e| RPCError::Unreachable(Unreachable::new(&e)))
    }
}

impl RaftNetworkV2<Types> for Connection {
    type SnapshotData = ();

    async fn append_entries(
        &mut self,
        r: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Rpc<AppendEntriesResponse<Types>> {
        self.call(Request::Append(r)).await
    }

    async fn vote(&mut self, r: VoteRequest<Types>, _: RPCOption) -> Rpc<VoteResponse<Types>> {
        self.call(Request::Vote(r)).await
    }

    async fn full_snapshot(
        &mut self,
        _: VoteOf<Types>,
        _: SnapshotOf<Types, ()>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(StreamingError::Unreachable(Unreachable::new(
            &io::Error::other("no snapshots in this measurement"),
        )))
    }
}
