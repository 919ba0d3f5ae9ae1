/* c_reader - the least that any client can do: an epoll loop that reads all streams and stamps each read.
 *
 * It plays COUNT streams of the sink once, and prints one line of JSON: chunks/s, CPU for each, and their lag (time of
 * the read's return less the stamp that the event carries), over all and over the steady state, in which every stream
 * runs. What it opens and sends is done before its CPU is counted: that begins shortly before the first chunk is due.
 *
 *   cc -O2 -o c_reader c_reader.c ; ./c_reader -p PORT -c STREAMS -n CHUNKS -i INTERVAL_US -t TTFT_US [-s 1] [-g GAP_US]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 512
#define SILENCE_MS 5000
#define STAMP_NAME "\"sts\":\""
#define STAMP_DIGITS 20
#define LAST_CHUNK "0\r\n\r\n"

typedef int64_t ns_t;

struct seen {
    ns_t sent_at, lag;
    int stream;
};

static struct {
    int port, streams, chunks, interval_us, ttft_us, lock_step, gap_us;
} want = {18080, 64, 100, 20000, 500000, 0, 0};
static char buffer[1 << 18];
static struct seen *seen;
static size_t seen_len, seen_cap;

static ns_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static double cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void read_options(int count, char **values) {
    for (int option; (option = getopt(count, values, "p:c:n:i:t:s:g:")) > 0;)
        switch (option) {
        case 'p': want.port = atoi(optarg); break;
        case 'c': want.streams = atoi(optarg); break;
        case 'n': want.chunks = atoi(optarg); break;
        case 'i': want.interval_us = atoi(optarg); break;
        case 't': want.ttft_us = atoi(optarg); break;
        case 's': want.lock_step = atoi(optarg); break;
        case 'g': want.gap_us = atoi(optarg); break;
        default: exit(2);
        }
}

static void allow_many_files(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

static int connect_one(int epoll, int stream) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(want.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = stream};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (void *)&address, sizeof address))
        die("c_reader: connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    return fd;
}

static void send_all(const int *fds) {
    static const char body[] =
        "{\"model\":\"default\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true}";
    char request[600];
    int len = snprintf(request, sizeof request,
                       "POST /v1/chat/completions?n=%d&iv=%d&ttft=%d&sync=%d&gap=%d HTTP/1.1\r\nhost: x\r\n"
                       "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                       want.chunks, want.interval_us, want.ttft_us, want.lock_step, want.gap_us, sizeof body - 1, body);
    for (int i = 0; i < want.streams; i++)
        if (send(fds[i], request, len, 0) != len)
            die("c_reader: send");
}

static void note_stamps(int stream, ssize_t len) {
    ns_t at = now_ns();
    char *from = buffer, *end = buffer + len;
    size_t name_len = sizeof STAMP_NAME - 1;
    while ((from = memmem(from, end - from, STAMP_NAME, name_len)) && from + name_len + STAMP_DIGITS <= end) {
        ns_t sent_at = 0;
        from += name_len;
        for (int i = 0; i < STAMP_DIGITS; i++)
            sent_at = sent_at * 10 + *from++ - '0';
        if (seen_len < seen_cap)
            seen[seen_len++] = (struct seen){sent_at, at - sent_at, stream};
    }
}

/* Reads until every stream is done or nothing comes any more; returns how many are left. */
static int read_all(int epoll, const int *fds) {
    struct epoll_event events[EVENTS];
    int left = want.streams, count;
    while (left && (count = epoll_wait(epoll, events, EVENTS, SILENCE_MS)) > 0)
        for (int i = 0; i < count; i++) {
            int stream = events[i].data.u32;
            ssize_t len = recv(fds[stream], buffer, sizeof buffer, MSG_DONTWAIT);
            if (len == 0 || (len < 0 && errno != EAGAIN))
                die("c_reader: a stream was closed");
            if (len < 0)
                continue;
            note_stamps(stream, len);
            if (len >= 5 && !memcmp(buffer + len - 5, LAST_CHUNK, 5))
                left--;
        }
    return left;
}

static int by_lag(const void *a, const void *b) {
    ns_t x = ((const struct seen *)a)->lag, y = ((const struct seen *)b)->lag;
    return (x > y) - (x < y);
}

static void print_lags(const char *name, struct seen *from, size_t n) {
    qsort(from, n, sizeof *from, by_lag);
    if (!n) {
        printf(", \"%s\": null", name);
        return;
    }
    printf(", \"%s\": {\"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}", name, from[(n - 1) / 2].lag / 1e3,
           from[(size_t)(.99 * (n - 1))].lag / 1e3, from[n - 1].lag / 1e3);
}

/* Moves the events that were sent while every stream ran to the front; returns how many they are. */
static size_t steady(void) {
    ns_t *first = calloc(want.streams, sizeof *first), *last = calloc(want.streams, sizeof *last), from = 0;
    ns_t to = INT64_MAX;
    size_t n = 0;
    for (struct seen *s = seen; s < seen + seen_len; s++) {
        if (!first[s->stream])
            first[s->stream] = s->sent_at;
        last[s->stream] = s->sent_at;
    }
    for (int i = 0; i < want.streams; i++) {
        from = first[i] > from ? first[i] : from;
        to = last[i] < to ? last[i] : to;
    }
    for (struct seen *s = seen; s < seen + seen_len; s++)
        if (s->sent_at >= from && s->sent_at < to) {
            struct seen other = seen[n];
            seen[n++] = *s;
            *s = other;
        }
    free(first);
    free(last);
    return n;
}

int main(int count, char **values) {
    read_options(count, values);
    allow_many_files();
    int epoll = epoll_create1(0), *fds = malloc(want.streams * sizeof *fds);
    seen_cap = (size_t)want.streams * (want.chunks + 4);
    seen = malloc(seen_cap * sizeof *seen);
    for (int i = 0; i < want.streams; i++)
        fds[i] = connect_one(epoll, i);
    ns_t began_at = now_ns();
    send_all(fds);
    while (now_ns() < began_at + want.ttft_us * 900LL)
        usleep(1000);
    ns_t from = now_ns();
    double cpu_from = cpu_s();
    int left = read_all(epoll, fds);
    double wall = (now_ns() - from) / 1e9, cpu = cpu_s() - cpu_from;
    printf("{\"client\": \"c\", \"streams\": %d, \"failed\": %d, \"events\": %zu, \"wall_s\": %.4f, \"events_per_s\": %.0f, "
           "\"cpu_us\": %.3f, \"busy\": %.3f",
           want.streams, left, seen_len, wall, seen_len / wall, cpu * 1e6 / seen_len, cpu / wall);
    print_lags("user_lag_us", seen, steady());
    print_lags("user_lag_all_us", seen, seen_len);
    printf("}\n");
    return left ? 1 : 0;
}
