/* sink - a server that only streams: what a load generator's own limits are measured against.
 *
 * One epoll thread, HTTP/1.1 keep-alive on 127.0.0.1, chunked SSE shaped like SGLang's POST /v1/chat/completions and
 * /v1/completions with "stream": true. One send() for each event, which carries the CLOCK_MONOTONIC nanoseconds just
 * before that send() as "sts", so that a client on the same host knows its lag without any clock to compare.
 *
 *   cc -O2 -o sink *.c ; ./sink -p 0            prints the port that it found
 *   -p PORT   0: a free one                     -n N      content chunks, where the request does not say (n, max_tokens)
 *   -i US     between chunks; 0: unpaced        -t US     from the request's last byte to the first chunk
 *   -s 1      lock-step: all streams send on common ticks of the interval, as a batch decodes
 *   -g US     between two streams in one tick   -w BYTES  text of a chunk, at least
 *   -k N      tokens in a chunk                 -u 1      running usage on each chunk, asked for or not
 *   -b BYTES  send buffer of a connection       -x        ends when its standard input is closed
 * A request's query says n= iv= ttft= sync= gap= tok= usage= for its stream; /__reset sets them for all (see truth.c). */
#include "sink.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 512
#define READY_SLICE 256 /* sends between two looks at the sockets */
#define DUE_SLICE 128
#define EARLY_NS 5000 /* the wake-up itself takes about this long; the rest is polled */

struct settings defaults = {.chunks = 100, .interval_us = 20000, .text_bytes = 8, .chunk_tokens = 1};
static int epoll, listener, send_buffer, ends_with_input;

static int read_options(int count, char **values) {
    int port = 18080, option;
    while ((option = getopt(count, values, "p:n:i:t:s:g:w:k:u:b:x")) > 0)
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'n': defaults.chunks = atol(optarg); break;
        case 'i': defaults.interval_us = atol(optarg); break;
        case 't': defaults.ttft_us = atol(optarg); break;
        case 's': defaults.lock_step = atol(optarg); break;
        case 'g': defaults.gap_us = atol(optarg); break;
        case 'w': defaults.text_bytes = atol(optarg); break;
        case 'k': defaults.chunk_tokens = atol(optarg) > 0 ? atol(optarg) : 1; break;
        case 'u': defaults.running_usage = atol(optarg); break;
        case 'b': send_buffer = atoi(optarg); break;
        case 'x': ends_with_input = 1; break;
        default: exit(2);
        }
    return port;
}

static void watch(int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) {
        perror("sink: epoll");
        exit(1);
    }
}

static void start_listening(int port) {
    int one = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&address, len) || listen(listener, 4096)) {
        perror("sink: cannot listen");
        exit(1);
    }
    getsockname(listener, (void *)&address, &len);
    watch(listener);
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
}

static void allow_many_files(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

static void accept_all(void) {
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    int fd, one = 1;
    while ((fd = accept4(listener, (void *)&peer, &len, SOCK_NONBLOCK)) >= 0) {
        if (fd >= MAX_CONNECTIONS) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (send_buffer)
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
        open_connection(epoll, fd, ntohs(peer.sin_port));
    }
}

static void on_socket(int fd, uint32_t events) {
    struct connection *c = connection_of(fd);
    if (!c) /* closed by an earlier event of this batch */
        return;
    if (events & EPOLLOUT && c->out_len) {
        int state = flush_rest(c);
        if (state < 0) {
            close_connection(c);
            return;
        }
        if (state == 0 && c->is_streaming && c->heap_at == NOWHERE) {
            if (c->interval)
                pace(c);
            else
                make_ready(c);
        }
    }
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP) && read_requests(c) < 0)
        close_connection(c);
}

/* One event for each unpaced stream in turn. */
static void send_ready(void) {
    struct connection *c = next_ready(0);
    for (int i = 0; c && i < READY_SLICE; i++) {
        int state = step(c);
        if (state < 0)
            close_connection(c);
        else if (state == 1)
            unqueue(c); /* until its socket can be written */
        c = next_ready(state == 0);
    }
}

static void send_due(void) {
    ns_t now = now_ns();
    struct connection *c;
    for (int i = 0; i < DUE_SLICE && (c = first_due()) && c->due <= now; i++) {
        int state = step(c);
        if (state < 0) {
            close_connection(c);
        } else if (state < 2 && !c->interval) {
            unqueue(c);
            if (state == 0)
                make_ready(c);
        } else if (state < 2) {
            c->due += c->interval;
            if (state == 1)
                unqueue(c);
            else
                move_later(c);
        }
    }
}

static struct timespec time_to_next(void) {
    struct timespec wait = {3600, 0};
    struct connection *c = first_due();
    if (next_ready(0)) {
        wait.tv_sec = 0;
    } else if (c) {
        ns_t left = c->due - now_ns() - EARLY_NS;
        if (left < 0)
            left = 0;
        wait = (struct timespec){left / 1000000000, left % 1000000000};
    }
    return wait;
}

int main(int count, char **values) {
    int port = read_options(count, values);
    signal(SIGPIPE, SIG_IGN);
    allow_many_files();
    make_templates(defaults.text_bytes);
    open_truth();
    epoll = epoll_create1(0);
    start_listening(port);
    if (ends_with_input)
        watch(STDIN_FILENO);
    for (;;) {
        struct epoll_event events[EVENTS];
        struct timespec wait = time_to_next();
        int n = epoll_pwait2(epoll, events, EVENTS, &wait, NULL);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            char byte;
            if (fd == listener)
                accept_all();
            else if (fd == STDIN_FILENO && ends_with_input) {
                if (read(STDIN_FILENO, &byte, 1) <= 0)
                    return 0;
            } else
                on_socket(fd, events[i].events);
        }
        send_ready();
        send_due();
    }
}
