import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import org.apache.ratis.client.RaftClient;
import org.apache.ratis.client.RaftClientConfigKeys;
import org.apache.ratis.conf.RaftProperties;
import org.apache.ratis.grpc.GrpcConfigKeys;
import org.apache.ratis.proto.RaftProtos.LogEntryProto;
import org.apache.ratis.protocol.Message;
import org.apache.ratis.protocol.RaftGroup;
import org.apache.ratis.protocol.RaftGroupId;
import org.apache.ratis.protocol.RaftPeer;
import org.apache.ratis.server.RaftServer;
import org.apache.ratis.server.RaftServerConfigKeys;
import org.apache.ratis.statemachine.TransactionContext;
import org.apache.ratis.statemachine.impl.BaseStateMachine;
import org.apache.ratis.thirdparty.com.google.protobuf.ByteString;
import org.apache.ratis.thirdparty.com.google.protobuf.UnsafeByteOperations;
import org.apache.ratis.util.SizeInBytes;
import org.apache.ratis.util.VersionInfo;

/** Apache Ratis over gRPC with a counting state machine; one ordered asynchronous client. */
public final class Ratis implements Bench.Peer {
    public static void main(String[] args) throws Exception { Bench.run(new Ratis(), args); }

    @Override public String name() { return "ratis"; }
    @Override public String fsync() { return "FileChannel.force of the segment, grouped"; }
    @Override public String version() { return VersionInfo.load(RaftServer.class).getSoftwareInfoVersion(); }
    @Override public int window(Bench.Options o) { return 4096; }

    private static RaftGroup group(Bench.Options o) {
        List<RaftPeer> peers = new ArrayList<>();
        for (int v = 1; v <= Bench.VOTERS; v++) {
            peers.add(RaftPeer.newBuilder().setId("n" + v).setAddress("127.0.0.1:" + (o.basePort + 60 + v)).build());
        }
        return RaftGroup.valueOf(RaftGroupId.valueOf(new UUID(1, 2)), peers);
    }

    @Override public Bench.Voter start(int id, Bench.Options o) throws Exception {
        RaftProperties p = new RaftProperties();
        GrpcConfigKeys.Server.setPort(p, o.basePort + 60 + id);
        RaftServerConfigKeys.setStorageDir(p, List.of(o.home(id).toFile()));
        RaftServerConfigKeys.Log.setUnsafeFlushEnabled(p, !o.sync);
        RaftServerConfigKeys.Log.setSegmentSizeMax(p, SizeInBytes.valueOf("64MB"));
        RaftServerConfigKeys.Log.Appender.setBufferByteLimit(p, SizeInBytes.valueOf("4MB"));
        RaftServerConfigKeys.Write.setElementLimit(p, 1 << 16);
        Counter counter = new Counter();
        RaftServer.newBuilder().setServerId(group(o).getPeers().stream().filter(x -> x.getId().toString().equals("n" + id))
            .findFirst().get().getId()).setGroup(group(o)).setProperties(p).setStateMachine(counter).build().start();
        return counter;
    }

    @Override public Bench.Client client(Bench.Options o) throws Exception {
        RaftProperties p = new RaftProperties();
        RaftClientConfigKeys.Async.setOutstandingRequestsMax(p, o.window + 1);
        RaftClient client = RaftClient.newBuilder().setProperties(p).setRaftGroup(group(o)).build();
        return new Bench.Client() {
            @Override public void submit(byte[] value, int n, long started, Bench.Meter m) {
                ByteString bytes = UnsafeByteOperations.unsafeWrap(value);
                client.async().send(Message.valueOf(bytes)).whenComplete((reply, e) -> {
                    if (e == null && reply.isSuccess()) m.done(started, n); else m.failed(e == null ? reply : e);
                });
            }
            @Override public void close() throws Exception { client.close(); }
        };
    }

    private static final class Counter extends BaseStateMachine implements Bench.Voter {
        private volatile long count;

        @Override public long count() { return count; }
        @Override public CompletableFuture<Message> applyTransaction(TransactionContext t) {
            LogEntryProto e = t.getLogEntry();
            updateLastAppliedTermIndex(e.getTerm(), e.getIndex());
            count++;
            return CompletableFuture.completedFuture(Message.EMPTY);
        }
    }
}
