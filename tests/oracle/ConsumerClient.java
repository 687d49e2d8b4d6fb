import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.BatchReceivePolicy;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.RedeliveryBackoff;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * Consumes as programs in Java do, with redeliveries, seeks and several consumers.
 *
 * <p>Arguments: the two URLs, a prefix of topics, and the scenarios (default: all). Prints what each
 * consumer got, then "done". ConsumerClient.txt is what it prints of Pulsar 4.0.7, with the prefix
 * "recorded" and acknowledgmentAtBatchIndexLevelEnabled=true.
 */
public class ConsumerClient {
    interface Scenario {
        void run() throws Exception;
    }

    static final SubscriptionType EXCLUSIVE = SubscriptionType.Exclusive, SHARED = SubscriptionType.Shared,
            FAILOVER = SubscriptionType.Failover, KEY_SHARED = SubscriptionType.Key_Shared;
    static final int QUIET_MS = 1200;
    static final Map<String, Scenario> SCENARIOS = new TreeMap<>();
    static PulsarClient client;
    static PulsarAdmin admin;
    static String prefix;
    static final ThreadLocal<State> STATE = new ThreadLocal<>();

    /** A scenario that runs: several do at a time, as most wait for the most part. */
    static class State {
        final String scenario;
        final List<AutoCloseable> opened = new ArrayList<>();
        final List<String> lines = Collections.synchronizedList(new ArrayList<>());

        State(String scenario) {
            this.scenario = scenario;
        }
    }

    public static void main(String[] arguments) {
        try {
            client = PulsarClient.builder().serviceUrl(arguments[0]).operationTimeout(20, TimeUnit.SECONDS).build();
            admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).build();
            prefix = arguments[2];
            define();
            List<String> chosen = Arrays.asList(arguments).subList(3, arguments.length);
            ExecutorService pool = Executors.newFixedThreadPool(8);
            List<Future<State>> running = new ArrayList<>();
            for (Map.Entry<String, Scenario> each : SCENARIOS.entrySet()) {
                if (!chosen.isEmpty() && !chosen.contains(each.getKey())) continue;
                running.add(pool.submit(() -> run(each.getKey(), each.getValue())));
            }
            for (Future<State> each : running) {
                State state = each.get();
                for (String line : state.lines) System.out.println(state.scenario + ": " + line);
            }
            System.out.println("done");
        } catch (Throwable error) {
            error.printStackTrace();
        }
        // Threads of the client would go on.
        System.exit(0);
    }

    static State run(String name, Scenario body) {
        State state = new State(name);
        STATE.set(state);
        try {
            body.run();
        } catch (Throwable error) {
            say("failed", error.getClass().getSimpleName() + ": " + error.getMessage());
        }
        for (AutoCloseable each : state.opened) {
            try {
                each.close();
            } catch (Exception error) {
                // It was closed before.
            }
        }
        return state;
    }

    static void define() {
        for (SubscriptionType type : List.of(EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED)) {
            for (boolean batch : new boolean[] {false, true}) {
                String kind = type.name().toLowerCase() + (batch ? "-batched" : "");
                SCENARIOS.put("redeliver-all-" + kind, () -> redeliverAll(type, batch));
                SCENARIOS.put("nack-" + kind, () -> nack(type, batch));
                SCENARIOS.put("ack-timeout-" + kind, () -> ackTimeout(type, batch));
                SCENARIOS.put("seek-in-flight-" + kind, () -> seekInFlight(type, batch));
                SCENARIOS.put("leave-" + kind, () -> leave(type, batch));
                SCENARIOS.put("unload-" + kind, () -> unload(type, batch));
                SCENARIOS.put("batch-index-" + kind, () -> batchIndex(type, batch));
            }
            String kind = type.name().toLowerCase();
            SCENARIOS.put("zero-queue-" + kind, () -> zeroQueue(type));
            SCENARIOS.put("dead-letters-" + kind, () -> deadLetters(type));
            SCENARIOS.put("batch-receive-" + kind, () -> batchReceive(type));
            SCENARIOS.put("partitions-" + kind, () -> partitions(type));
            SCENARIOS.put("admin-moves-" + kind, () -> adminMoves(type));
            SCENARIOS.put("pause-" + kind, () -> pause(type));
        }
        for (SubscriptionType type : List.of(EXCLUSIVE, FAILOVER)) {
            String kind = type.name().toLowerCase();
            SCENARIOS.put("cumulative-" + kind, () -> cumulative(type));
        }
        for (SubscriptionType type : List.of(SHARED, KEY_SHARED)) {
            String kind = type.name().toLowerCase();
            SCENARIOS.put("nack-backoff-" + kind, () -> nackBackoff(type));
            SCENARIOS.put("retry-letters-" + kind, () -> retryLetters(type));
        }
        SCENARIOS.put("failover-names", () -> failoverNames());
        SCENARIOS.put("failover-priorities", () -> failoverPriorities());
        SCENARIOS.put("failover-partitions", () -> failoverPartitions());
        SCENARIOS.put("failover-hand-over", () -> failoverHandOver());
        SCENARIOS.put("failover-redeliver-passive", () -> failoverPassive());
        SCENARIOS.put("shared-priorities", () -> sharedPriorities());
        SCENARIOS.put("shared-priorities-redelivery", () -> sharedPrioritiesRedelivery());
        SCENARIOS.put("shared-priorities-full", () -> sharedPrioritiesFull());
        SCENARIOS.put("shared-leave", () -> sharedLeave());
        SCENARIOS.put("reader-seek", () -> readerSeek());
        SCENARIOS.put("exclusive-busy", () -> exclusiveBusy());
        SCENARIOS.put("type-change", () -> typeChange());
        SCENARIOS.put("terminated", () -> terminated());
    }

    // Redeliveries

    static void redeliverAll(SubscriptionType type, boolean batch) throws Exception {
        send("t", 12, batch);
        Consumer<String> c = open(builder("t", type));
        List<Message<String>> got = receive(c, 12);
        say("first", values(got));
        c.acknowledge(got.get(0));
        c.acknowledge(got.get(1));
        c.acknowledge(got.get(4));
        c.redeliverUnacknowledgedMessages();
        say("again", counted(type, all(c)));
        c.redeliverUnacknowledgedMessages();
        got = all(c);
        say("third", counted(type, got));
        for (Message<String> each : got) c.acknowledge(each);
        c.redeliverUnacknowledgedMessages();
        say("rest", counted(type, all(c)));
        backlog("t");
    }

    static void nack(SubscriptionType type, boolean batch) throws Exception {
        send("t", 10, batch);
        Consumer<String> c = open(builder("t", type).negativeAckRedeliveryDelay(300, TimeUnit.MILLISECONDS));
        List<Message<String>> got = receive(c, 10);
        for (int i = 0; i < 10; i++) {
            if (i == 2 || i == 5) c.negativeAcknowledge(got.get(i));
            else if (i != 7) c.acknowledge(got.get(i));
        }
        for (int round = 0; round < 3; round++) {
            got = all(c);
            say("round " + round, counted(type, got));
            for (Message<String> each : got) c.negativeAcknowledge(each.getMessageId());
        }
        got = all(c);
        for (Message<String> each : got) c.acknowledge(each);
        say("last", counted(type, got));
        say("rest", counted(type, all(c)));
        backlog("t");
    }

    static void nackBackoff(SubscriptionType type) throws Exception {
        send("t", 4, false);
        RedeliveryBackoff backoff = count -> 100L + 100L * count;
        Consumer<String> c = open(builder("t", type).negativeAckRedeliveryBackoff(backoff));
        for (int round = 0; round < 4; round++) {
            List<Message<String>> got = receive(c, 4);
            say("round " + round, counted(type, got));
            for (Message<String> each : got) c.negativeAcknowledge(each);
        }
        List<Message<String>> got = receive(c, 4);
        for (Message<String> each : got) c.acknowledge(each);
        say("last", counted(type, got));
        backlog("t");
    }

    static void ackTimeout(SubscriptionType type, boolean batch) throws Exception {
        send("t", 6, batch);
        Consumer<String> c = open(builder("t", type).ackTimeout(1, TimeUnit.SECONDS).ackTimeoutTickTime(100, TimeUnit.MILLISECONDS));
        List<Message<String>> got = receive(c, 6);
        say("first", counted(type, got));
        c.acknowledge(got.get(0));
        c.acknowledge(got.get(3));
        got = receive(c, batch ? 6 : 4);
        say("again", counted(type, got));
        for (Message<String> each : got) c.acknowledge(each);
        say("rest", counted(type, all(c)));
        backlog("t");
    }

    static void batchIndex(SubscriptionType type, boolean batch) throws Exception {
        send("t", 10, batch);
        Consumer<String> c = open(builder("t", type).enableBatchIndexAcknowledgment(true).isAckReceiptEnabled(true));
        List<Message<String>> got = receive(c, 10);
        for (int i : new int[] {0, 3, 4}) c.acknowledge(got.get(i));
        c.redeliverUnacknowledgedMessages();
        got = all(c);
        say("again", counted(type, got));
        if (!isShared(type)) {
            c.acknowledgeCumulative(got.get(2));
            c.redeliverUnacknowledgedMessages();
            got = all(c);
            say("after cumulative", counted(type, got));
        }
        c.close();
        c = open(builder("t", type).enableBatchIndexAcknowledgment(true));
        got = all(c);
        say("next consumer", values(got));
        for (Message<String> each : got) c.acknowledge(each);
        c.close();
        backlog("t");
    }

    static void cumulative(SubscriptionType type) throws Exception {
        send("t", 20, false);
        send("t", 20, true);
        Consumer<String> c = open(builder("t", type));
        List<Message<String>> got = receive(c, 30);
        c.acknowledgeCumulative(got.get(9));
        c.redeliverUnacknowledgedMessages();
        got = all(c);
        say("again", counted(type, got));
        c.acknowledgeCumulative(got.get(15));
        c.redeliverUnacknowledgedMessages();
        got = all(c);
        say("third", counted(type, got));
        c.acknowledgeCumulative(got.get(got.size() - 1));
        say("rest", counted(type, all(c)));
        backlog("t");
    }

    static void zeroQueue(SubscriptionType type) throws Exception {
        send("t", 6, false);
        Consumer<String> c = open(builder("t", type).receiverQueueSize(0).negativeAckRedeliveryDelay(200, TimeUnit.MILLISECONDS));
        List<String> got = new ArrayList<>();
        Message<String> first = c.receive(), second = c.receive();
        got.add(first.getValue());
        got.add(second.getValue());
        c.acknowledge(first);
        c.redeliverUnacknowledgedMessages();
        for (int i = 0; i < 3; i++) {
            Message<String> m = c.receive();
            got.add(m.getValue() + "/" + m.getRedeliveryCount());
            if (i == 1) c.negativeAcknowledge(m);
        }
        if (isShared(type)) Collections.sort(got);
        say("got", got);
    }

    static void deadLetters(SubscriptionType type) throws Exception {
        send("t", 4, false);
        DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(2).deadLetterTopic(topic("dead")).initialSubscriptionName("kept").build();
        Consumer<String> c = null;
        try {
            c = open(builder("t", type).negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS).deadLetterPolicy(policy));
        } catch (Exception error) {
            say("refused", error.getMessage());
            return;
        }
        List<String> seen = new ArrayList<>();
        for (Message<String> m; (m = c.receive(2, TimeUnit.SECONDS)) != null;) {
            seen.add(m.getValue() + "/" + m.getRedeliveryCount());
            if (number(m) % 2 == 0) c.acknowledge(m);
            else c.negativeAcknowledge(m);
            if (seen.size() == 16) break;
        }
        if (isShared(type)) Collections.sort(seen);
        say("seen", seen);
        if (isShared(type)) {
            Consumer<String> dead = open(client.newConsumer(Schema.STRING).topic(topic("dead")).subscriptionName("kept"));
            List<Message<String>> letters = all(dead);
            say("dead", sorted(letters));
            for (Message<String> each : letters) say("properties", new TreeSet<>(each.getProperties().keySet()));
        }
        c.close();
        backlog("t");
    }

    static void retryLetters(SubscriptionType type) throws Exception {
        Consumer<String> c = open(builder("t", type).enableRetry(true).deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2)
                .retryLetterTopic(topic("retry")).deadLetterTopic(topic("dead")).initialSubscriptionName("kept").build()));
        send("t", 2, false);
        List<String> seen = new ArrayList<>();
        for (Message<String> m; (m = c.receive(3, TimeUnit.SECONDS)) != null;) {
            seen.add(m.getValue() + "/" + m.getProperty("RECONSUMETIMES"));
            c.reconsumeLater(m, 300, TimeUnit.MILLISECONDS);
            if (seen.size() > 20) break;
        }
        Collections.sort(seen);
        say("seen", seen);
        Consumer<String> dead = open(client.newConsumer(Schema.STRING).topic(topic("dead")).subscriptionName("kept"));
        say("dead", sorted(all(dead)));
    }

    static void batchReceive(SubscriptionType type) throws Exception {
        send("t", 20, false);
        Consumer<String> c = open(builder("t", type).negativeAckRedeliveryDelay(200, TimeUnit.MILLISECONDS)
                .batchReceivePolicy(BatchReceivePolicy.builder().maxNumMessages(10).timeout(3, TimeUnit.SECONDS).build()));
        say("first", strings(c.batchReceive()));
        List<Message<String>> second = new ArrayList<>();
        c.batchReceive().forEach(second::add);
        say("second", values(second));
        c.acknowledge(second.get(0));
        c.redeliverUnacknowledgedMessages();
        List<Message<String>> got = new ArrayList<>();
        for (int i = 0; i < 4; i++) c.batchReceive().forEach(got::add);
        say("again", counted(type, got));
    }

    static void partitions(SubscriptionType type) throws Exception {
        admin.topics().createPartitionedTopic(topic("p"), 3);
        Consumer<String> c = open(builder("p", type).negativeAckRedeliveryDelay(300, TimeUnit.MILLISECONDS));
        Producer<String> p = client.newProducer(Schema.STRING).topic(topic("p")).enableBatching(false).create();
        for (int i = 0; i < 30; i++) p.newMessage().key("k" + i).value("v" + i).send();
        p.close();
        List<Message<String>> got = receive(c, 30);
        say("first", sorted(got));
        for (Message<String> each : got) if (number(each) % 3 == 0) c.acknowledge(each);
        c.redeliverUnacknowledgedMessages();
        got = all(c);
        say("again", sorted(got));
        for (Message<String> each : got) if (number(each) == 1) c.negativeAcknowledge(each); else c.acknowledge(each);
        got = all(c);
        say("nacked", sorted(got));
        c.seek(MessageId.earliest);
        say("sought", sorted(all(c)));
    }

    static void leave(SubscriptionType type, boolean batch) throws Exception {
        send("t", 10, batch);
        Consumer<String> c = open(builder("t", type));
        List<Message<String>> got = receive(c, 5);
        c.acknowledge(got.get(0));
        c.close();
        c = open(builder("t", type));
        got = all(c);
        say("next", counted(type, got));
        c.close();
        c = open(builder("t", type));
        got = all(c);
        say("third", counted(type, got));
    }

    static void unload(SubscriptionType type, boolean batch) throws Exception {
        send("t", 10, batch);
        Consumer<String> c = open(builder("t", type));
        List<Message<String>> got = receive(c, 5);
        c.acknowledge(got.get(0));
        admin.topics().unload(topic("t"));
        reconnected(c, "t");
        send("t", 2, false);
        got = all(c);
        say("count", new TreeSet<>(values(got)).size());
        c.redeliverUnacknowledgedMessages();
        got = all(c);
        for (Message<String> each : got) c.acknowledge(each);
        say("rest", values(all(c)));
        backlog("t");
    }

    static void pause(SubscriptionType type) throws Exception {
        send("t", 30, false);
        Consumer<String> c = open(builder("t", type).receiverQueueSize(10));
        receive(c, 3);
        c.pause();
        List<Message<String>> got = all(c);
        say("in the queue", got.size());
        c.redeliverUnacknowledgedMessages();
        got = all(c);
        say("paused", got.size());
        c.resume();
        got = all(c);
        say("resumed", distinct(got));
    }

    // Positions

    static void seekInFlight(SubscriptionType type, boolean batch) throws Exception {
        List<MessageId> ids = send("t", 1000, batch);
        Consumer<String> c = open(builder("t", type).receiverQueueSize(100));
        List<Message<String>> got = receive(c, 7);
        c.acknowledge(got.get(6));
        c.seek(MessageId.earliest);
        List<Message<String>> first = all(c);
        say("earliest", distinct(first) + " in order " + isOrdered(type, first) + " of " + first.size());
        c.seek(ids.get(990));
        say("to 990", valuesOf(type, all(c)));
        c.seek(MessageId.latest);
        say("latest", valuesOf(type, all(c)));
        c.seek(ids.get(0));
        CompletableFuture<Void> moving = c.seekAsync(ids.get(500));
        while (!moving.isDone()) {
            Message<String> m = c.receive(20, TimeUnit.MILLISECONDS);
            if (m != null && isShared(type)) c.acknowledgeAsync(m);
        }
        say("moved", moving.isCompletedExceptionally());
        List<Message<String>> last = all(c);
        say("from 500", (distinct(last) >= 490) + " in order " + isOrdered(type, last));
        c.redeliverUnacknowledgedMessages();
        last = all(c);
        say("again from 500", (distinct(last) >= 490) + " in order " + isOrdered(type, last));
        // NOTE: a redelivery directly after a seek makes the client drop all messages, on any broker.
        c.seek(0);
        last = all(c);
        say("by time", distinct(last) + " in order " + isOrdered(type, last));
        c.seek(name -> ids.get(995));
        say("by function", valuesOf(type, all(c)));
    }

    static void adminMoves(SubscriptionType type) throws Exception {
        List<MessageId> ids = send("t", 20, false);
        Consumer<String> c = open(builder("t", type));
        receive(c, 10);
        admin.topics().resetCursor(topic("t"), "s", ids.get(15));
        List<Message<String>> got = all(c);
        say("reset", new TreeSet<>(values(got)).contains("v19"));
        c.redeliverUnacknowledgedMessages();
        say("after reset", valuesOf(type, all(c)));
        admin.topics().skipMessages(topic("t"), "s", 2);
        c.redeliverUnacknowledgedMessages();
        say("after skip", valuesOf(type, all(c)));
        admin.topics().skipAllMessages(topic("t"), "s");
        c.redeliverUnacknowledgedMessages();
        say("after skip all", valuesOf(type, all(c)));
        backlog("t");
    }

    static void readerSeek() throws Exception {
        List<MessageId> ids = send("t", 500, false);
        Reader<String> r = client.newReader(Schema.STRING).topic(topic("t")).startMessageId(MessageId.earliest).receiverQueueSize(50).create();
        STATE.get().opened.add(r);
        for (int i = 0; i < 5; i++) r.readNext();
        for (int at : new int[] {490, 3, 250}) {
            r.seek(ids.get(at));
            say("has more", r.hasMessageAvailable());
            say("after " + at, r.readNext().getValue());
        }
        r.seek(MessageId.latest);
        say("has more", r.hasMessageAvailable());
        r.seek(MessageId.earliest);
        int count = 0;
        while (r.hasMessageAvailable()) {
            r.readNext();
            count++;
        }
        say("count", count);
    }

    // Several consumers

    static void failoverNames() throws Exception {
        Map<String, Consumer<String>> all = new TreeMap<>();
        for (String name : List.of("b", "d", "a", "c")) all.put(name, open(builder("t", FAILOVER).consumerName(name)));
        Thread.sleep(1500);
        send("t", 8, false);
        while (!all.isEmpty()) {
            String owner = null;
            for (Map.Entry<String, Consumer<String>> each : all.entrySet()) {
                List<Message<String>> got = all(each.getValue());
                if (!got.isEmpty()) {
                    owner = each.getKey();
                    say(owner + " got", values(got));
                    each.getValue().acknowledge(got.get(0));
                }
            }
            if (owner == null) break;
            all.remove(owner).close();
        }
    }

    static void failoverPriorities() throws Exception {
        Map<String, Consumer<String>> all = new TreeMap<>();
        int priority = 3;
        for (String name : List.of("w", "x", "y", "z")) {
            all.put(name, open(builder("t", FAILOVER).consumerName(name).priorityLevel(priority--)));
            Thread.sleep(300);
        }
        send("t", 5, false);
        for (String name : List.of("z", "y", "x", "w")) {
            List<Message<String>> got = all(all.get(name));
            say(name + " got", values(got));
            if (!got.isEmpty()) all.get(name).acknowledge(got.get(0));
            all.get(name).close();
            Thread.sleep(300);
        }
    }

    static void failoverPartitions() throws Exception {
        admin.topics().createPartitionedTopic(topic("p"), 6);
        Map<String, Consumer<String>> all = new TreeMap<>();
        for (String name : List.of("m", "k", "l", "n")) all.put(name, open(builder("p", FAILOVER).consumerName(name)));
        Thread.sleep(1500);
        Producer<String> p = client.newProducer(Schema.STRING).topic(topic("p")).enableBatching(false).create();
        for (int i = 0; i < 40; i++) p.newMessage().key("k" + i).value("v" + i).send();
        p.close();
        for (Map.Entry<String, Consumer<String>> each : all.entrySet()) say(each.getKey() + " got", sorted(all(each.getValue())));
        all.remove("l").close();
        Thread.sleep(1500);
        for (Map.Entry<String, Consumer<String>> each : all.entrySet()) say(each.getKey() + " then", new TreeSet<>(values(all(each.getValue()))).size());
    }

    static void failoverHandOver() throws Exception {
        send("t", 300, false);
        Consumer<String> low = open(builder("t", FAILOVER).consumerName("low").priorityLevel(2).receiverQueueSize(20));
        List<Message<String>> got = receive(low, 30);
        low.acknowledgeCumulative(got.get(9));
        low.redeliverUnacknowledgedMessages();
        say("low again", receive(low, 1).get(0).getValue());
        Consumer<String> high = open(builder("t", FAILOVER).consumerName("high").priorityLevel(1).receiverQueueSize(20));
        List<Message<String>> second = all(high);
        say("high", distinct(second) + " from " + second.get(0).getValue() + " in order " + isOrdered(FAILOVER, second));
        high.acknowledgeCumulative(second.get(99));
        high.redeliverUnacknowledgedMessages();
        say("high again", all(high).get(0).getValue());
        high.close();
        while (low.receive(200, TimeUnit.MILLISECONDS) != null) continue;
        low.redeliverUnacknowledgedMessages();
        List<Message<String>> third = all(low);
        say("low at last", distinct(third) + " from " + third.get(0).getValue() + " in order " + isOrdered(FAILOVER, third));
    }

    static void failoverPassive() throws Exception {
        Consumer<String> high = open(builder("t", FAILOVER).consumerName("high").priorityLevel(0));
        Consumer<String> low = open(builder("t", FAILOVER).consumerName("low").priorityLevel(1));
        Thread.sleep(1300);
        send("t", 10, false);
        List<Message<String>> got = receive(high, 10);
        high.acknowledge(got.get(0));
        low.redeliverUnacknowledgedMessages();
        low.redeliverUnacknowledgedMessages();
        say("high then", values(all(high)));
        say("low then", values(all(low)));
        high.close();
        List<Message<String>> rest = all(low);
        say("low at last", values(rest));
        for (Message<String> each : rest) low.acknowledge(each);
        backlog("t");
    }

    static void sharedPriorities() throws Exception {
        Consumer<String> first = open(builder("t", SHARED).consumerName("first").priorityLevel(0).receiverQueueSize(10));
        Consumer<String> second = open(builder("t", SHARED).consumerName("second").priorityLevel(1).receiverQueueSize(10));
        Consumer<String> third = open(builder("t", SHARED).consumerName("third").priorityLevel(2).receiverQueueSize(1000));
        send("t", 50, false);
        Thread.sleep(500);
        say("stats", permits("t"));
        say("third", all(third).size());
        List<Message<String>> got = new ArrayList<>();
        got.addAll(all(first));
        say("first", got.size());
        say("second", all(second).size());
        send("t", 4, false);
        say("first next", all(first).size());
    }

    static void sharedPrioritiesRedelivery() throws Exception {
        Consumer<String> second = open(builder("t", SHARED).consumerName("second").priorityLevel(1).receiverQueueSize(100));
        send("t", 20, false);
        List<Message<String>> got = receive(second, 20);
        Consumer<String> first = open(builder("t", SHARED).consumerName("first").priorityLevel(0).receiverQueueSize(100));
        second.redeliverUnacknowledgedMessages();
        say("first", counted(SHARED, all(first)));
        say("second", counted(SHARED, all(second)));
        first.close();
        say("second at last", counted(SHARED, all(second)));
    }

    static void sharedPrioritiesFull() throws Exception {
        Consumer<String> a = open(builder("t", SHARED).consumerName("a").priorityLevel(1).receiverQueueSize(8));
        Consumer<String> b = open(builder("t", SHARED).consumerName("b").priorityLevel(1).receiverQueueSize(8));
        Consumer<String> c = open(builder("t", SHARED).consumerName("c").priorityLevel(5).receiverQueueSize(8));
        send("t", 16, false);
        Thread.sleep(500);
        say("full", permits("t"));
        send("t", 5, false);
        Thread.sleep(500);
        say("more", permits("t"));
        say("c", all(c).size());
        say("a and b", all(a).size() + all(b).size());
    }

    static void sharedLeave() throws Exception {
        Consumer<String> one = open(builder("t", SHARED).consumerName("one"));
        send("t", 10, false);
        List<Message<String>> got = receive(one, 10);
        one.acknowledge(got.get(3));
        Consumer<String> two = open(builder("t", SHARED).consumerName("two"));
        one.close();
        got = all(two);
        say("two", counted(SHARED, got));
        two.redeliverUnacknowledgedMessages();
        say("again", counted(SHARED, all(two)));
        one = open(builder("t", SHARED).consumerName("one"));
        two.close();
        say("one", counted(SHARED, all(one)));
    }

    static void exclusiveBusy() throws Exception {
        open(builder("t", EXCLUSIVE).consumerName("one"));
        for (SubscriptionType type : List.of(EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED)) {
            try {
                open(builder("t", type).consumerName("two"));
                say(type.name(), "connected");
            } catch (Exception error) {
                say(type.name(), error.getClass().getSimpleName());
            }
        }
        // Another connection of a client that lives.
        try (PulsarClient other = PulsarClient.builder().serviceUrl(((org.apache.pulsar.client.impl.PulsarClientImpl) client).getLookup().getServiceUrl()).build()) {
            other.newConsumer(Schema.STRING).topic(topic("t")).subscriptionName("s").subscribe();
            say("other client", "connected");
        } catch (Exception error) {
            say("other client", error.getClass().getSimpleName());
        }
    }

    static void typeChange() throws Exception {
        send("t", 5, false);
        Consumer<String> c = open(builder("t", EXCLUSIVE));
        receive(c, 3);
        c.redeliverUnacknowledgedMessages();
        c.close();
        for (SubscriptionType type : List.of(SHARED, FAILOVER, KEY_SHARED, EXCLUSIVE)) {
            c = open(builder("t", type));
            say(type.name(), counted(type, all(c)));
            c.redeliverUnacknowledgedMessages();
            say(type.name() + " again", counted(type, all(c)));
            c.close();
        }
    }

    static void terminated() throws Exception {
        send("t", 3, false);
        CompletableFuture<Boolean> ended = new CompletableFuture<>();
        Consumer<String> c = open(builder("t", SHARED));
        List<Message<String>> got = receive(c, 3);
        say("ended", c.hasReachedEndOfTopic());
        admin.topics().terminateTopic(topic("t"));
        say("ended with a backlog", c.hasReachedEndOfTopic());
        c.redeliverUnacknowledgedMessages();
        got = all(c);
        say("again", counted(SHARED, got));
        for (Message<String> each : got) c.acknowledge(each);
        long end = System.currentTimeMillis() + 5000;
        while (!c.hasReachedEndOfTopic() && System.currentTimeMillis() < end) Thread.sleep(20);
        say("ended at last", c.hasReachedEndOfTopic());
    }

    // Internals

    static String topic(String name) {
        return "persistent://public/default/" + prefix + "-" + STATE.get().scenario + "-" + name;
    }

    static ConsumerBuilder<String> builder(String name, SubscriptionType type) {
        return client.newConsumer(Schema.STRING).topic(topic(name)).subscriptionName("s").subscriptionType(type)
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS).subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    static Consumer<String> open(ConsumerBuilder<String> builder) throws Exception {
        Consumer<String> c = builder.subscribe();
        STATE.get().opened.add(c);
        return c;
    }

    static List<MessageId> send(String name, int count, boolean batch) throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        try (Producer<String> p = client.newProducer(Schema.STRING).topic(topic(name)).enableBatching(batch).blockIfQueueFull(true)
                .batchingMaxMessages(count >= 100 ? 100 : count).batchingMaxPublishDelay(10, TimeUnit.SECONDS).create()) {
            for (int i = 0; i < count; i++) sent.add(p.newMessage().key("k" + i % 7).value("v" + i).sendAsync());
            p.flush();
        }
        List<MessageId> ids = new ArrayList<>();
        for (CompletableFuture<MessageId> each : sent) ids.add(each.get(20, TimeUnit.SECONDS));
        return ids;
    }

    static List<Message<String>> receive(Consumer<String> c, int count) throws Exception {
        List<Message<String>> got = new ArrayList<>();
        while (got.size() < count) {
            Message<String> m = c.receive(8, TimeUnit.SECONDS);
            if (m == null) throw new IllegalStateException("only " + values(got));
            got.add(m);
        }
        return got;
    }

    static List<Message<String>> all(Consumer<String> c) throws Exception {
        List<Message<String>> got = new ArrayList<>();
        for (Message<String> m; (m = c.receive(QUIET_MS, TimeUnit.MILLISECONDS)) != null;) {
            got.add(m);
            if (got.size() > 20000) throw new IllegalStateException("endless");
        }
        return got;
    }

    // Waits until a consumer of a topic that was unloaded is connected again. NOTE: the client begins a new epoch with
    // each redelivery that it requests. One requested while it waits for the answer to its SUBSCRIBE is not sent, so the
    // broker, Pulsar as well, stamps the old epoch on all messages, and the client discards them forever.
    static void reconnected(Consumer<String> c, String name) throws Exception {
        while (!c.isConnected() || admin.topics().getStats(topic(name)).getSubscriptions().get("s").getConsumers().isEmpty()) {
            Thread.sleep(20);
        }
    }

    static boolean isShared(SubscriptionType type) {
        return type == SHARED || type == KEY_SHARED;
    }

    static int number(Message<String> m) {
        return Integer.parseInt(m.getValue().substring(1));
    }

    static List<String> values(List<Message<String>> got) {
        return got.stream().map(Message::getValue).collect(Collectors.toList());
    }

    static List<String> strings(Iterable<Message<String>> got) {
        List<String> found = new ArrayList<>();
        for (Message<String> each : got) found.add(each.getValue());
        return found;
    }

    static List<String> sorted(List<Message<String>> got) {
        List<String> found = values(got);
        Collections.sort(found);
        return found;
    }

    static List<String> valuesOf(SubscriptionType type, List<Message<String>> got) {
        return isShared(type) ? sorted(got) : values(got);
    }

    static List<String> counted(SubscriptionType type, List<Message<String>> got) {
        List<String> found = got.stream().map(m -> m.getValue() + "/" + m.getRedeliveryCount()).collect(Collectors.toList());
        if (isShared(type)) Collections.sort(found);
        return found;
    }

    static int distinct(List<Message<String>> got) {
        return new TreeSet<>(values(got)).size();
    }

    static boolean isOrdered(SubscriptionType type, List<Message<String>> got) {
        if (isShared(type)) return true;
        for (int i = 1; i < got.size() - 1; i++) if (number(got.get(i)) <= number(got.get(i - 1))) return false;
        return true;
    }

    static Map<String, String> permits(String name) throws Exception {
        Map<String, String> found = new TreeMap<>();
        admin.topics().getStats(topic(name)).getSubscriptions().get("s").getConsumers()
                .forEach(c -> found.put(c.getConsumerName(), c.getAvailablePermits() + "/" + c.getUnackedMessages()));
        return found;
    }

    /** Acknowledgements have no answer: the backlog is asked for until it is as small as it gets. */
    static void backlog(String name) throws Exception {
        long least = Long.MAX_VALUE, end = System.currentTimeMillis() + 1000;
        while (least > 0 && System.currentTimeMillis() < end) {
            least = Math.min(least, admin.topics().getStats(topic(name), true).getSubscriptions().get("s").getMsgBacklog());
            Thread.sleep(50);
        }
        say("backlog", least);
    }

    static void say(String what, Object value) {
        STATE.get().lines.add(what + ": " + value);
    }
}
