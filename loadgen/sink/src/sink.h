/* What the parts of the sink share: the settings of a stream, a connection, and what each part offers. */
#pragma once
#define _GNU_SOURCE
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define MAX_CONNECTIONS 65536
#define ID_CHARS 32
#define KEY_CHARS 24
#define NOWHERE (-1)

typedef int64_t ns_t; /* CLOCK_MONOTONIC nanoseconds, or a length in them */

static inline ns_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

struct settings {
    long chunks, interval_us, ttft_us, lock_step, gap_us, text_bytes, chunk_tokens, running_usage;
};
extern struct settings defaults; /* from the command line or the last /__reset */

struct connection {
    int fd;
    uint16_t peer_port;
    /* request: a head, then a body of which the middle is dropped when it is large */
    char *in;
    size_t in_len, in_cap, head_len, body_len, dropped;
    /* response: bytes that the socket did not take yet */
    char *out;
    size_t out_len, out_cap;
    int wants_out;
    /* stream */
    int is_streaming, is_text, has_running_usage;
    int heap_at, ready_at; /* place among the paced / the unpaced streams, or NOWHERE */
    uint32_t sent, chunks, chunk_tokens, prompt_tokens, max_tokens;
    uint64_t request; /* number of the request since the start; also the response's id */
    ns_t due, interval, read_at, first_at, last_at;
    char id[ID_CHARS + 1], key[KEY_CHARS + 1];
};

/* connection.c: sockets */
struct connection *connection_of(int fd);
struct connection *open_connection(int epoll, int fd, uint16_t peer_port);
void close_connection(struct connection *c);
int put(struct connection *c, const char *bytes, size_t len); /* 0 all sent, 1 a rest is kept, -1 dead */
int flush_rest(struct connection *c);                         /* the same */
int reply(struct connection *c, int status, const char *type, const char *body, size_t len);

/* request.c: HTTP in */
int read_requests(struct connection *c); /* -1: the connection is to be closed */
long number_after(const char *from, const char *end, const char *key, long otherwise);
void read_settings(struct settings *s, const char *query, const char *end);

/* stream.c: events out */
void make_templates(long text_bytes);
int begin_stream(struct connection *c, const struct settings *s, ns_t now);
int answer_whole(struct connection *c);
int step(struct connection *c); /* as `put`; 2: the stream is finished */
void abort_stream(struct connection *c);

/* queue.c: who sends next */
void pace(struct connection *c);         /* among the paced, by `due` */
void make_ready(struct connection *c);   /* among the unpaced */
void unqueue(struct connection *c);
void move_later(struct connection *c);   /* its `due` has grown */
struct connection *first_due(void);      /* NULL: none is paced */
struct connection *next_ready(int skip); /* NULL: none; `skip`: the one given last stays in the ring */

/* truth.c: what was sent, and when */
struct counters {
    uint64_t requests, done, events, bytes, blocked, aborted, connections, streams, max_streams;
};
extern struct counters counters;
void open_truth(void);
void note_late(ns_t late);
void note_chunk(struct connection *c, ns_t now);
void note_done(const struct connection *c);
int control_page(struct connection *c, const char *path, const char *end);
