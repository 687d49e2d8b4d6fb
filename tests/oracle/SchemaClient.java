import java.time.Instant;
import java.time.LocalDate;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException.IncompatibleSchemaException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SchemaSerializationException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/** Uses schemas as programs in Java do. Arguments: the two URLs. Prints what failed, then "done". */
public class SchemaClient {
    public static class Old {
        public String name;
        public int number;
    }

    public static class New {
        public String name;
        public int number;
        public String more;
    }

    public static class Other {
        public double weight;
    }

    interface Call {
        void run() throws Exception;
    }

    static PulsarClient client;
    static PulsarAdmin admin;

    public static void main(String[] urls) {
        try {
            all(urls);
            System.out.println("done");
        } catch (Throwable error) {
            error.printStackTrace();
        }
        // Threads of the client would go on.
        System.exit(0);
    }

    static void all(String[] urls) throws Exception {
        client = PulsarClient.builder().serviceUrl(urls[0]).operationTimeout(20, TimeUnit.SECONDS).build();
        admin = PulsarAdmin.builder().serviceHttpUrl(urls[1]).build();
        versions("avro", Schema.AVRO(Old.class), Schema.AVRO(New.class), Schema.AVRO(Other.class));
        versions("json", Schema.JSON(Old.class), Schema.JSON(New.class), Schema.JSON(Other.class));
        severalSchemas();
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            pairs(encoding);
        }
        primitive(Schema.INT8, (byte) 1);
        primitive(Schema.INT16, (short) 2);
        primitive(Schema.INT32, 3);
        primitive(Schema.INT64, 4L);
        primitive(Schema.BOOL, true);
        primitive(Schema.FLOAT, 5f);
        primitive(Schema.DOUBLE, 6d);
        primitive(Schema.STRING, "seven");
        primitive(Schema.INSTANT, Instant.ofEpochMilli(8));
        primitive(Schema.LOCAL_DATE, LocalDate.of(2009, 10, 11));
        partitions();
        client.close();
        admin.close();
    }

    static void check(boolean isTrue, String what) {
        if (!isTrue) {
            System.out.println("FAILED " + what);
        }
    }

    static void refused(Class<?> kind, String what, Call call) {
        try {
            call.run();
            check(false, what + " was not refused");
        } catch (Exception error) {
            check(kind.isInstance(error), what + ": " + error);
        }
    }

    static <T> Consumer<T> from(String topic, String name, Schema<T> schema) throws Exception {
        return client.newConsumer(schema).topic(topic).subscriptionName(name)
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
    }

    static <T> T next(Consumer<T> consumer) throws Exception {
        return consumer.receive(20, TimeUnit.SECONDS).getValue();
    }

    static Old old(int number) {
        Old value = new Old();
        value.name = "old";
        value.number = number;
        return value;
    }

    static New recent(int number) {
        New value = new New();
        value.name = "new";
        value.number = number;
        value.more = "more";
        return value;
    }

    static void versions(String topic, Schema<Old> one, Schema<New> two, Schema<Other> other) throws Exception {
        client.newProducer(one).topic(topic).create().send(old(1));
        client.newProducer(two).topic(topic).create().send(recent(2));
        Consumer<GenericRecord> any = from(topic, "any", Schema.AUTO_CONSUME());
        check(next(any).getFields().size() == 2, topic + ": the first has its own version");
        check("more".equals(next(any).getField("more")), topic + ": and so has the second");
        New read = next(from(topic, "new", two));
        check(read.number == 1 && read.more == null, topic + ": a new reader of an old message");
        Producer<byte[]> bytes = client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(topic).create();
        bytes.send(two.encode(recent(3)));
        refused(SchemaSerializationException.class, topic + ": bytes", () -> bytes.send("?".getBytes()));
        refused(IncompatibleSchemaException.class, topic + ": a producer",
            () -> client.newProducer(other).topic(topic).create());
        refused(IncompatibleSchemaException.class, topic + ": a consumer",
            () -> from(topic, "text", Schema.STRING));
        check(client.newReader(one).topic(topic).startMessageId(MessageId.earliest).create()
            .readNext(20, TimeUnit.SECONDS).getValue().number == 1, topic + ": a reader");
        check(admin.schemas().getAllSchemas(topic).size() == 2, topic + ": all versions");
        check(admin.schemas().getVersionBySchema(topic, one.getSchemaInfo()) == 0, topic + ": a version");
        check(admin.schemas().testCompatibility(topic, two.getSchemaInfo()).isCompatibility(), topic);
        refused(PulsarAdminException.class, topic + ": other",
            () -> admin.schemas().testCompatibility(topic, other.getSchemaInfo()));
    }

    static void severalSchemas() throws Exception {
        Producer<Old> producer = client.newProducer(Schema.AVRO(Old.class)).topic("several").create();
        producer.newMessage(Schema.AVRO(New.class)).value(recent(1)).send();
        check(admin.schemas().getAllSchemas("several").size() == 2, "a producer of two schemas");
        check(next(from("several", "s", Schema.AVRO(New.class))).number == 1, "its message");
    }

    static void pairs(KeyValueEncodingType encoding) throws Exception {
        String topic = "pairs-" + encoding;
        client.newProducer(Schema.KeyValue(Schema.INT32, Schema.AVRO(Old.class), encoding))
            .topic(topic).create().send(new KeyValue<>(7, old(1)));
        Object any = next(from(topic, "any", Schema.AUTO_CONSUME())).getNativeObject();
        check(((KeyValue<?, ?>) any).getKey().equals(7), topic + ": any");
        check(next(from(topic, "new", Schema.KeyValue(Schema.INT32, Schema.AVRO(New.class), encoding)))
            .getValue().number == 1, topic + ": a new reader of an old message");
        SchemaInfo info = admin.schemas().getSchemaInfo(topic);
        check(info.getType() == SchemaType.KEY_VALUE, topic + ": its type");
        admin.schemas().createSchema(topic, info);
        check(admin.schemas().getAllSchemas(topic).size() == 1, topic + ": the same again");
        refused(IncompatibleSchemaException.class, topic + ": another type of keys",
            () -> client.newProducer(Schema.KeyValue(Schema.STRING, Schema.AVRO(New.class), encoding))
                .topic(topic).create());
    }

    static <T> void primitive(Schema<T> schema, T value) throws Exception {
        String topic = "primitive-" + schema.getSchemaInfo().getType();
        client.newProducer(schema).topic(topic).create().send(value);
        Object found = next(from(topic, "any", Schema.AUTO_CONSUME())).getNativeObject();
        check(value.equals(found), topic + ": " + found);
    }

    static void partitions() throws Exception {
        String topic = "persistent://public/default/parts";
        admin.topics().createPartitionedTopic(topic, 3);
        Producer<Old> producer = client.newProducer(Schema.JSON(Old.class)).topic(topic).create();
        for (int at = 0; at < 6; at++) {
            producer.send(old(at));
        }
        Consumer<GenericRecord> any = from(topic, "any", Schema.AUTO_CONSUME());
        int sum = 0;
        for (int at = 0; at < 6; at++) {
            sum += ((Number) next(any).getField("number")).intValue();
        }
        check(sum == 15, "partitions");
        admin.schemas().deleteSchema(topic);
        refused(PulsarAdminException.NotFoundException.class, "a deleted schema",
            () -> admin.schemas().getSchemaInfo(topic));
    }
}
