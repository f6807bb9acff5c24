// hashicorp-raft measures github.com/hashicorp/raft on its write-ahead log, raft-wal.
package main

import (
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
	"peers/gobench"
)

func main() {
	version := gobench.Version("github.com/hashicorp/raft")
	gobench.Main(gobench.Peer{
		Name:    "hashicorp-raft",
		Version: version + ", raft-wal " + gobench.Version("github.com/hashicorp/raft-wal"),
		Fsync:   "fsync of raft-wal, grouped",
		Client:  "in the leader",
		Start:   start,
	})
}

type voter struct {
	raft    *raft.Raft
	log     io.Closer
	size    int // of a proposed entry
	applied atomic.Uint64
}

func start(c gobench.Config) (gobench.Voter, error) {
	var files types.VFS = fs.New()
	if !c.Sync {
		files = unsynced{files}
	}
	filer := wal.WithSegmentFiler(segment.NewFiler(c.Dir, files))
	log, err := wal.Open(c.Dir, filer, wal.WithLogger(hclog.NewNullLogger()))
	if err != nil {
		return nil, err
	}
	v := &voter{log: log, size: c.Size}
	net, err := raft.NewTCPTransport(c.Addr(c.ID, 0), nil, 3, 10*time.Second, io.Discard)
	if err != nil {
		return nil, err
	}
	config := raft.DefaultConfig()
	config.LocalID = name(c.ID)
	config.BatchApplyCh = true     // group commit: the leader takes all that is queued,
	config.MaxAppendEntries = 1024 // up to this many, in one store call
	config.SnapshotThreshold = 1 << 40
	config.Logger = hclog.NewNullLogger()
	snapshots := raft.NewDiscardSnapshotStore()
	if c.ID == 1 { // the others learn the configuration from voter 1, the first leader
		var members raft.Configuration
		for i := 1; i <= gobench.Voters; i++ {
			server := raft.Server{ID: name(i), Address: raft.ServerAddress(c.Addr(i, 0))}
			members.Servers = append(members.Servers, server)
		}
		if err := raft.BootstrapCluster(config, log, log, snapshots, net, members); err != nil {
			return nil, err
		}
	}
	v.raft, err = raft.NewRaft(config, v, log, log, snapshots, net)
	return v, err
}

func (v *voter) Lead() error {
	for range 300 {
		if v.raft.VerifyLeader().Error() == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("voter 1 does not lead")
}

func (v *voter) Propose(entry []byte) func() error {
	return v.raft.Apply(entry, time.Minute).Error
}

func (v *voter) Applied() uint64 { return v.applied.Load() }
func (v *voter) Close()          { v.raft.Shutdown().Error(); v.log.Close() }

// Apply and ApplyBatch, its cheaper form, only count.
func (v *voter) Apply(l *raft.Log) any { return v.ApplyBatch([]*raft.Log{l}) }
func (v *voter) ApplyBatch(logs []*raft.Log) []any {
	n := 0
	for _, l := range logs {
		if l.Type == raft.LogCommand && len(l.Data) == v.size {
			n++
		}
	}
	v.applied.Add(uint64(n))
	return make([]any, len(logs))
}

func (v *voter) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.ErrUnsupported }
func (v *voter) Restore(io.ReadCloser) error         { return errors.ErrUnsupported }

func name(id int) raft.ServerID { return raft.ServerID(strconv.Itoa(id)) }

// unsynced is the real file system without its flushes: raft-wal itself has no such option.
type unsynced struct{ types.VFS }
type unsyncedFile struct{ types.WritableFile }

func (u unsynced) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := u.VFS.Create(dir, name, size)
	return unsyncedFile{f}, err
}
func (unsyncedFile) Sync() error { return nil }
