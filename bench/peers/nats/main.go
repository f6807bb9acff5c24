// nats measures a JetStream stream of three replicas on file storage in three embedded
// nats-servers; the client uses the in-process connection of the stream's leader.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"peers/gobench"
)

const stream, subject = "LOG", "log"

func main() {
	gobench.Main(gobench.Peer{
		Name:    "nats",
		Version: gobench.Version("github.com/nats-io/nats-server/v2"),
		Fsync:   "fsync of the Raft log, grouped; sync_interval: always",
		Client:  "in the leader, connected in process",
		Start:   start,
	})
}

type voter struct {
	server *server.Server
	conn   *nats.Conn
	js     nats.JetStreamContext
}

func start(c gobench.Config) (gobench.Voter, error) {
	var routes []*url.URL
	for i := 1; i <= gobench.Voters; i++ {
		routes = append(routes, &url.URL{Scheme: "nats", Host: c.Addr(i, 0)})
	}
	interval := 2 * time.Minute // the default
	if !c.Sync {
		interval = time.Hour
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: name(c.ID), Host: "127.0.0.1", Port: port(c.Addr(c.ID, 1)),
		NoSigs: true, NoLog: true, Routes: routes,
		Cluster: server.ClusterOpts{
			Name: "peers", Host: "127.0.0.1", Port: port(c.Addr(c.ID, 0)),
		},
		JetStream: true, StoreDir: c.Dir,
		JetStreamMaxStore: 64 << 30, JetStreamMaxMemory: 1 << 30,
		SyncAlways: c.Sync, SyncInterval: interval,
	})
	if err != nil {
		return nil, err
	}
	go srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		return nil, errors.New("server not ready")
	}
	conn, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		return nil, err
	}
	pending := nats.PublishAsyncMaxPending(max(c.Window, 2))
	js, err := conn.JetStream(pending, nats.MaxWait(time.Minute))
	return &voter{srv, conn, js}, err
}

func (v *voter) Lead() error {
	config := nats.StreamConfig{
		Name: stream, Subjects: []string{subject}, Replicas: gobench.Voters,
		Storage: nats.FileStorage,
	}
	created := false
	for range 300 {
		time.Sleep(100 * time.Millisecond)
		if !created {
			_, err := v.js.AddStream(&config, nats.MaxWait(2*time.Second))
			created = err == nil
			continue
		}
		info, err := v.js.StreamInfo(stream, nats.MaxWait(2*time.Second))
		if err != nil || info.Cluster == nil {
			continue
		}
		found := info.Cluster
		if found.Leader == "" || len(found.Replicas) < gobench.Voters-1 {
			continue
		}
		if found.Leader == name(1) {
			return nil
		}
		placement := map[string]string{"preferred": name(1)}
		prefer, _ := json.Marshal(map[string]any{"placement": placement})
		v.conn.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, prefer, 2*time.Second)
	}
	return errors.New("voter 1 does not lead the stream")
}

func (v *voter) Propose(entry []byte) func() error {
	future, err := v.js.PublishAsync(subject, entry, nats.StallWait(time.Minute))
	return func() error {
		if err != nil {
			return err
		}
		select {
		case <-future.Ok():
			return nil
		case err := <-future.Err():
			return err
		}
	}
}

// Applied is the last sequence number in this replica's own copy of the stream.
func (v *voter) Applied() uint64 {
	info, err := v.server.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil || len(info.AccountDetails) == 0 {
		return 0
	}
	streams := info.AccountDetails[0].Streams
	if len(streams) == 0 {
		return 0
	}
	return streams[0].State.LastSeq
}

func (v *voter) Close() {
	v.conn.Close()
	v.server.Shutdown()
	v.server.WaitForShutdown()
}

func name(id int) string { return fmt.Sprintf("voter%d", id) }

func port(address string) int {
	n, _ := strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:])
	return n
}
