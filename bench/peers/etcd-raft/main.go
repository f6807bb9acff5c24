// etcd-raft measures the bare go.etcd.io/raft library on etcd's write-ahead log: no server, no
// key-value store.
//
// One goroutine owns the Raft state. Each turn takes all that is queued (group commit); the leader
// sends before it saves, so that its flush runs beside those of the followers, as etcd does (Raft
// thesis, 10.2.1).
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"peers/gobench"
)

const (
	tick  = 100 * time.Millisecond
	batch = 4096   // most proposals taken in one turn
	keep  = 100000 // applied entries that stay in memory
)

func main() {
	gobench.Main(gobench.Peer{
		Name:    "etcd-raft",
		Version: gobench.Version("go.etcd.io/raft/v3"),
		Fsync:   "fdatasync of etcd's WAL, grouped",
		Client:  "in the leader",
		Start:   start,
	})
}

type proposal struct {
	entry []byte
	done  chan error
}

type voter struct {
	id        uint64
	size      int // of a proposed entry
	node      *raft.RawNode
	memory    *raft.MemoryStorage
	wal       *wal.WAL
	proposals chan proposal
	waiting   []chan error // of the proposals that are not applied yet, in order
	received  chan *pb.Message
	outgoing  map[uint64]chan *pb.Message
	applied   atomic.Uint64
	leading   atomic.Bool
	campaign  chan struct{}
	stop      chan struct{}
	stopped   chan struct{}
}

func start(c gobench.Config) (gobench.Voter, error) {
	w, err := wal.Create(zap.NewNop(), filepath.Join(c.Dir, "wal"), nil)
	if err != nil {
		return nil, err
	}
	if !c.Sync {
		w.SetUnsafeNoFsync()
	}
	v := &voter{
		id: uint64(c.ID), size: c.Size, wal: w, memory: raft.NewMemoryStorage(),
		proposals: make(chan proposal, batch), received: make(chan *pb.Message, batch),
		outgoing: map[uint64]chan *pb.Message{}, campaign: make(chan struct{}, 1),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	election := 10
	if c.ID > 1 {
		election = 100 // voter 1 is to lead
	}
	raft.SetLogger(&raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)})
	v.node, err = raft.NewRawNode(&raft.Config{
		ID: v.id, ElectionTick: election, HeartbeatTick: 1, Storage: v.memory,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256,
	})
	if err != nil {
		return nil, err
	}
	var peers []raft.Peer
	for i := 1; i <= gobench.Voters; i++ {
		peers = append(peers, raft.Peer{ID: uint64(i)})
		if i != c.ID {
			out := make(chan *pb.Message, batch)
			v.outgoing[uint64(i)] = out
			go send(c.Addr(i, 0), out)
		}
	}
	if err := v.node.Bootstrap(peers); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", c.Addr(c.ID, 0))
	if err != nil {
		return nil, err
	}
	go v.accept(listener)
	go v.run()
	return v, nil
}

func (v *voter) Lead() error {
	for range 300 {
		if v.leading.Load() {
			return nil
		}
		select {
		case v.campaign <- struct{}{}:
		default:
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("voter 1 does not lead")
}

func (v *voter) Propose(entry []byte) func() error {
	done := make(chan error, 1)
	v.proposals <- proposal{entry, done}
	return func() error { return <-done }
}

func (v *voter) Applied() uint64 { return v.applied.Load() }
func (v *voter) Close()          { close(v.stop); <-v.stopped; v.wal.Close() }

func (v *voter) run() {
	defer close(v.stopped)
	clock := time.NewTicker(tick)
	for {
		select {
		case <-v.stop:
			return
		case <-clock.C:
			v.node.Tick()
		case <-v.campaign:
			v.node.Campaign()
		case m := <-v.received:
			v.node.Step(m)
		case p := <-v.proposals:
			v.propose(p)
		}
		for n := len(v.received); n > 0; n-- {
			v.node.Step(<-v.received)
		}
		for v.node.HasReady() {
			if err := v.turn(v.node.Ready()); err != nil {
				log.Fatal(err)
			}
		}
	}
}

// propose hands over one proposal and all that are queued behind it as one message.
func (v *voter) propose(p proposal) {
	entries := []*pb.Entry{{Data: p.entry}}
	v.waiting = append(v.waiting, p.done)
	for n := len(v.proposals); n > 0; n-- {
		p = <-v.proposals
		entries = append(entries, &pb.Entry{Data: p.entry})
		v.waiting = append(v.waiting, p.done)
	}
	message := &pb.Message{Type: pb.MsgProp.Enum(), From: &v.id, Entries: entries}
	if err := v.node.Step(message); err != nil {
		log.Fatal(err)
	}
}

func (v *voter) turn(r raft.Ready) error {
	if r.SoftState != nil {
		v.leading.Store(r.SoftState.RaftState == raft.StateLeader)
	}
	if v.leading.Load() {
		v.send(r.Messages)
	}
	if err := v.wal.Save(r.HardState, r.Entries); err != nil {
		return err
	}
	if err := v.memory.Append(r.Entries); err != nil {
		return err
	}
	if !v.leading.Load() {
		v.send(r.Messages)
	}
	n := 0
	for _, e := range r.CommittedEntries {
		if e.GetType() == pb.EntryConfChange {
			var change pb.ConfChange
			if err := proto.Unmarshal(e.Data, &change); err != nil {
				return err
			}
			v.node.ApplyConfChange(&change)
		} else if len(e.Data) == v.size {
			n++
		}
	}
	v.applied.Add(uint64(n))
	if v.id == 1 && n > 0 {
		for _, done := range v.waiting[:n] {
			done <- nil
		}
		v.waiting = v.waiting[n:]
	}
	v.node.Advance(r)
	return v.compact(r.CommittedEntries)
}

func (v *voter) compact(applied []*pb.Entry) error {
	first, err := v.memory.FirstIndex()
	if err != nil || len(applied) == 0 {
		return err
	}
	if last := applied[len(applied)-1].GetIndex(); last > first+2*keep {
		return v.memory.Compact(last - keep)
	}
	return nil
}

func (v *voter) send(messages []*pb.Message) {
	for _, m := range messages {
		v.outgoing[m.GetTo()] <- m
	}
}

// send writes length-prefixed messages to one voter, flushing when none is queued.
func send(address string, messages <-chan *pb.Message) {
	var conn net.Conn
	for {
		var err error
		if conn, err = net.Dial("tcp", address); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	out := bufio.NewWriterSize(conn, 1<<20)
	for m := range messages {
		frame, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 4), m)
		if err != nil {
			log.Fatal(err)
		}
		binary.LittleEndian.PutUint32(frame, uint32(len(frame)-4))
		if _, err := out.Write(frame); err != nil {
			continue // the other voter has ended
		}
		if len(messages) == 0 {
			out.Flush()
		}
	}
}

func (v *voter) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			in := bufio.NewReaderSize(conn, 1<<20)
			for {
				var size [4]byte
				if _, err := io.ReadFull(in, size[:]); err != nil {
					return
				}
				frame := make([]byte, binary.LittleEndian.Uint32(size[:]))
				if _, err := io.ReadFull(in, frame); err != nil {
					return
				}
				m := &pb.Message{}
				if err := proto.Unmarshal(frame, m); err != nil {
					return
				}
				v.received <- m
			}
		}()
	}
}
