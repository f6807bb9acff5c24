import com.alipay.sofa.jraft.Closure;
import com.alipay.sofa.jraft.Iterator;
import com.alipay.sofa.jraft.JRaftUtils;
import com.alipay.sofa.jraft.Node;
import com.alipay.sofa.jraft.RaftGroupService;
import com.alipay.sofa.jraft.Status;
import com.alipay.sofa.jraft.conf.Configuration;
import com.alipay.sofa.jraft.core.StateMachineAdapter;
import com.alipay.sofa.jraft.entity.PeerId;
import com.alipay.sofa.jraft.entity.Task;
import com.alipay.sofa.jraft.option.NodeOptions;
import java.nio.ByteBuffer;

/** SOFAJRaft: the engine with its RocksDB log, driven from inside the leader. */
public final class Jraft implements Bench.Peer {
    public static void main(String[] args) throws Exception { Bench.run(new Jraft(), args); }

    @Override public String name() { return "jraft"; }
    @Override public String fsync() { return "fdatasync of RocksDB's log, grouped"; }
    @Override public String version() { return "1.3.14"; }
    @Override public int window(Bench.Options o) { return 8192; }

    @Override public Bench.Voter start(int id, Bench.Options o) throws Exception {
        StringBuilder peers = new StringBuilder();
        for (int v = 1; v <= Bench.VOTERS; v++) {
            peers.append(v > 1 ? "," : "").append("127.0.0.1:" + (o.basePort + 50 + v));
        }
        Configuration conf = JRaftUtils.getConfiguration(peers.toString());
        Replica replica = new Replica();
        NodeOptions n = new NodeOptions();
        n.setInitialConf(conf);
        n.setFsm(replica);
        n.setLogUri(o.home(id).resolve("log").toString());
        n.setRaftMetaUri(o.home(id).resolve("meta").toString());
        n.getRaftOptions().setSync(o.sync);
        n.getRaftOptions().setDisruptorBufferSize(16384);
        n.getRaftOptions().setApplyBatch(64);
        PeerId self = JRaftUtils.getPeerId("127.0.0.1:" + (o.basePort + 50 + id));
        replica.node = new RaftGroupService("bench", self, n).start();
        return replica;
    }

    private static final class Replica extends StateMachineAdapter implements Bench.Voter, Bench.Client {
        volatile Node node;
        private volatile long count;

        @Override public long count() { return count; }
        @Override public Bench.Client client() { return node.isLeader(true) ? this : null; }

        @Override public void submit(byte[] value, int n, long started, Bench.Meter m) {
            node.apply(new Task(ByteBuffer.wrap(value), new Done(started, n, m)));
        }

        @Override public void onApply(Iterator it) {
            for (; it.hasNext(); it.next()) {
                count++;
                Closure done = it.done();
                if (done != null) done.run(Status.OK());
            }
        }
    }

    private record Done(long started, int n, Bench.Meter meter) implements Closure {
        @Override public void run(Status s) {
            if (s.isOk()) meter.done(started, n); else meter.failed(s);
        }
    }
}
