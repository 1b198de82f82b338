// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.meron.CustomTransport;

/**
 * One rank's end of the custom transport of this runner: threads that put messages into each other's
 * mailboxes. Sending copies, so that it is done at once.
 */
final class Mailbox implements CustomTransport {
    /** The messages of a job that are not received yet, by {from, to, tag}, each in order of sending. */
    private static final class Post {
        final Map<List<Long>, ArrayDeque<ByteBuffer>> messages = new HashMap<>();
        final Set<Integer> ranks = new HashSet<>(); // that have joined
    }

    private static final class Receive {
        final List<Long> address;
        final ByteBuffer place;

        Receive(List<Long> address, ByteBuffer place) {
            this.address = address;
            this.place = place;
        }
    }

    /** Jobs that not all ranks have joined yet. */
    private static final Map<String, Post> posts = new HashMap<>();

    private final Post post;
    private final int rank;
    private long requests;
    private final Map<Long, Integer> sent = new HashMap<>(); // bytes
    private final Map<Long, Receive> wanted = new HashMap<>();
    private final Map<List<Long>, ArrayDeque<Long>> turns = new HashMap<>();

    private Mailbox(Post post, int rank) {
        this.post = post;
        this.rank = rank;
    }

    /** This rank's mailbox of a job; the first rank that asks makes the job's post. */
    static synchronized Mailbox join(String job, int rank, int world) {
        final Post post = posts.computeIfAbsent(job, unused -> new Post());
        post.ranks.add(rank);
        if (post.ranks.size() == world) posts.remove(job);
        return new Mailbox(post, rank);
    }

    @Override
    public long send(int peer, long tag, ByteBuffer message) {
        final ByteBuffer copy = ByteBuffer.allocate(message.remaining()).put(message).flip();
        sent.put(++requests, copy.remaining());
        synchronized (post) {
            post.messages.computeIfAbsent(List.of((long) rank, (long) peer, tag),
                    unused -> new ArrayDeque<>()).add(copy);
            post.notifyAll();
        }
        return requests;
    }

    @Override
    public long receive(int peer, long tag, ByteBuffer place) {
        final List<Long> address = List.of((long) peer, (long) rank, tag);
        wanted.put(++requests, new Receive(address, place));
        turns.computeIfAbsent(address, unused -> new ArrayDeque<>()).add(requests);
        return requests;
    }

    @Override
    public long test(long request) {
        final Integer bytes = sent.remove(request);
        if (bytes != null) return bytes;
        final Receive receive = wanted.get(request);
        if (turns.get(receive.address).peek() != request) return NOT_YET;
        final ByteBuffer message;
        synchronized (post) {
            final ArrayDeque<ByteBuffer> waiting = post.messages.get(receive.address);
            if (waiting == null) return NOT_YET;
            message = waiting.remove();
            if (waiting.isEmpty()) post.messages.remove(receive.address);
        }
        final int size = message.remaining();
        receive.place.put(message);
        forget(request);
        return size;
    }

    @Override
    public void cancel(long request) {
        if (sent.remove(request) == null && wanted.containsKey(request)) forget(request);
    }

    @Override
    public void idle(Duration timeout) throws InterruptedException {
        synchronized (post) {
            post.wait(Math.max(timeout.toMillis(), 1)); // 0 would wait forever
        }
    }

    private void forget(long request) {
        final List<Long> address = wanted.remove(request).address;
        final ArrayDeque<Long> turn = turns.get(address);
        turn.remove(request);
        if (turn.isEmpty()) turns.remove(address);
    }
}
