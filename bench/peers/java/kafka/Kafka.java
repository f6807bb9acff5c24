import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.tools.StorageTool;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.record.internal.FileLogInputStream;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Kafka as its users have it: three combined brokers, RF 3, min.insync.replicas 2, acks=all, one partition, one producer. */
public final class Kafka implements Bench.Peer {
    private static final String CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg", TOPIC = "bench";

    public static void main(String[] args) throws Exception { Bench.run(new Kafka(), args); }

    private static String voters(Bench.Options o) {
        List<String> found = new ArrayList<>();
        for (int id = 1; id <= Bench.VOTERS; id++) found.add(id + "@127.0.0.1:" + (o.basePort + id));
        return String.join(",", found);
    }

    @Override public String name() { return "kafka"; }
    @Override public String fsync() { return "fsync of each append, flush.interval.messages=1"; }
    @Override public String version() { return AppInfoParser.getVersion(); }
    @Override public int window(Bench.Options o) { return 32 * 65536 / (o.valueBytes + 10); }

    @Override public Bench.Voter start(int id, Bench.Options o) throws Exception {
        int port = o.basePort + 10 + id;
        Path file = o.home(id).resolve("server.properties");
        Files.writeString(file, String.join("\n",
            "process.roles=broker,controller", "node.id=" + id,
            "controller.listener.names=CONTROLLER", "controller.quorum.voters=" + voters(o),
            "listeners=CONTROLLER://127.0.0.1:" + (o.basePort + id) + ",PLAINTEXT://127.0.0.1:" + port,
            "advertised.listeners=PLAINTEXT://127.0.0.1:" + port,
            "log.dirs=" + o.home(id).resolve("log"),
            "default.replication.factor=3", "min.insync.replicas=2",
            o.sync ? "log.flush.interval.messages=1" : ""));
        int rc = StorageTool.execute(new String[] {"format", "-t", CLUSTER, "-c", file.toString()}, System.err);
        if (rc != 0) throw new IllegalStateException("format: " + rc);
        new Thread(() -> kafka.Kafka.main(new String[] {file.toString()})).start();
        return () -> -1;
    }

    @Override public Bench.Client client(Bench.Options o) throws Exception {
        List<String> servers = new ArrayList<>();
        for (int id = 1; id <= Bench.VOTERS; id++) servers.add("127.0.0.1:" + (o.basePort + 10 + id));
        String bootstrap = String.join(",", servers);
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
            for (int i = 0; ; i++, Thread.sleep(200)) {
                try {
                    if (admin.describeCluster().nodes().get().size() == Bench.VOTERS) break;
                } catch (Exception e) {
                    if (i > 100) throw e;
                }
            }
            admin.createTopics(List.of(new NewTopic(TOPIC, 1, (short) 3))).all().get();
        }
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("acks", "all");
        p.put("linger.ms", "" + (o.throughput() ? Math.max(1, o.lingerMs) : o.lingerMs));
        p.put("batch.size", "" + (o.throughput() ? 1 << 18 : 16384));
        p.put("buffer.memory", "" + (128L << 20));
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
        return new Bench.Client() {
            @Override public void submit(byte[] value, int n, long started, Bench.Meter m) {
                producer.send(new ProducerRecord<>(TOPIC, 0, null, value), (meta, e) -> {
                    if (e == null) m.done(started, n); else m.failed(e);
                });
            }
            @Override public long count(int id) throws Exception { return stored(o.home(id).resolve("log/" + TOPIC + "-0")); }
            @Override public void close() { producer.close(); }
        };
    }

    /** Records in a replica's segment files. */
    private static long stored(Path dir) throws Exception {
        long n = 0;
        for (File f : dir.toFile().listFiles((d, name) -> name.endsWith(".log"))) {
            try (FileRecords r = FileRecords.open(f, false)) {
                for (FileLogInputStream.FileChannelRecordBatch b : r.batches()) n = Math.max(n, b.nextOffset());
            }
        }
        return n;
    }
}
