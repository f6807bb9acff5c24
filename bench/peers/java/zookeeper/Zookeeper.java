import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.FourLetterWordMain;
import org.apache.zookeeper.server.quorum.QuorumPeerMain;
import org.apache.zookeeper.version.Info;
import org.apache.zookeeper.Watcher.Event.KeeperState;

/** ZooKeeper: one client on the leader sets one znode asynchronously; the znode's version counts the writes. */
public final class Zookeeper implements Bench.Peer {
    private static final String NODE = "/bench";

    public static void main(String[] args) throws Exception { Bench.run(new Zookeeper(), args); }

    @Override public String name() { return "zookeeper"; }
    @Override public String fsync() { return "FileChannel.force of the transaction log, grouped"; }
    @Override public String version() { return Info.MAJOR + "." + Info.MINOR + "." + Info.MICRO; }
    @Override public int window(Bench.Options o) { return 2000; }

    @Override public Bench.Voter start(int id, Bench.Options o) throws Exception {
        System.setProperty("zookeeper.forceSync", o.sync ? "yes" : "no");
        System.setProperty("zookeeper.admin.enableServer", "false");
        System.setProperty("zookeeper.snapCount", "100000000");           // no snapshot inside a run
        System.setProperty("zookeeper.globalOutstandingLimit", "100000");
        System.setProperty("zookeeper.4lw.commands.whitelist", "srvr");
        Path home = o.home(id);
        List<String> lines = new ArrayList<>(List.of("tickTime=2000", "initLimit=10", "syncLimit=5", "dataDir=" + home,
            "clientPortAddress=127.0.0.1", "clientPort=" + port(o, id)));
        for (int v = 1; v <= Bench.VOTERS; v++) lines.add("server." + v + "=127.0.0.1:" + (o.basePort + 30 + v) + ":" + (o.basePort + 40 + v));
        Files.writeString(home.resolve("myid"), "" + id);
        Files.write(home.resolve("zoo.cfg"), lines);
        new Thread(() -> QuorumPeerMain.main(new String[] {home.resolve("zoo.cfg").toString()})).start();
        return () -> -1;
    }

    private static int port(Bench.Options o, int id) { return o.basePort + 20 + id; }

    @Override public Bench.Client client(Bench.Options o) throws Exception {
        int leader = leader(o);
        ZooKeeper zk = connect(o, leader);
        zk.create(NODE, new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        ZooKeeper[] seen = new ZooKeeper[Bench.VOTERS + 1];
        return new Bench.Client() {
            @Override public void submit(byte[] value, int n, long started, Bench.Meter m) {
                zk.setData(NODE, value, -1, (rc, path, ctx, stat) -> {
                    if (rc == 0) m.done(started, n); else m.failed("setData: " + rc);
                }, null);
            }
            @Override public long count(int id) throws Exception {
                if (seen[id] == null) seen[id] = connect(o, id);
                return seen[id].exists(NODE, false).getVersion();
            }
        };
    }

    private static int leader(Bench.Options o) throws Exception {
        for (int i = 0; i < 150; i++, Thread.sleep(200)) {
            for (int id = 1; id <= Bench.VOTERS; id++) {
                try {
                    if (FourLetterWordMain.send4LetterWord("127.0.0.1", port(o, id), "srvr").contains("Mode: leader")) return id;
                } catch (Exception notYet) { }
            }
        }
        throw new IllegalStateException("no leader in 30 s");
    }

    private static ZooKeeper connect(Bench.Options o, int id) throws Exception {
        CountDownLatch up = new CountDownLatch(1);
        ZooKeeper zk = new ZooKeeper("127.0.0.1:" + port(o, id), 30_000, e -> { if (e.getState() == KeeperState.SyncConnected) up.countDown(); });
        up.await();
        return zk;
    }
}
