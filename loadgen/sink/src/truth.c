/* What was sent, and when: counters, histograms, a row for each finished request, a stamp for each content chunk.
 *
 * GET /__stats  JSON: counters; TTFT, gap and lateness of the pacing (quantiles to about 4 %, means exact)
 * GET /__log    CSV, one line for each finished request
 * GET /__stamps binary, `struct stamp` for each content chunk, in order of sending (little-endian, 16 bytes)
 * GET /__reset  forgets all that; its query sets the defaults of the streams to come */
#include "sink.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MAX_STAMPS (1UL << 24)
#define OCTAVES 64
#define STEPS 16 /* in an octave */

struct counters counters;

struct histogram {
    uint64_t counts[OCTAVES * STEPS], n;
    double sum;
};
static struct histogram ttfts, gaps, lates;

struct row {
    uint64_t request;
    ns_t read_at, first_at, last_at;
    uint32_t chunks, port;
    char key[KEY_CHARS + 1];
};
static struct row *rows;
static size_t rows_len, rows_cap;

struct stamp {
    uint32_t request, chunk;
    ns_t sent_at;
};
static struct stamp *stamps;
static size_t stamps_len, stamps_lost;

void open_truth(void) {
    stamps = mmap(NULL, MAX_STAMPS * sizeof *stamps, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
    if (stamps == MAP_FAILED) {
        perror("sink: no memory for stamps");
        exit(1);
    }
}

static void add(struct histogram *h, ns_t value) {
    if (value < 1)
        value = 1;
    int octave = 63 - __builtin_clzll(value);
    int part = octave >= 4 ? value >> (octave - 4) & 15 : value << (4 - octave) & 15;
    h->counts[octave * STEPS + part]++;
    h->n++;
    h->sum += value;
}

static double quantile_us(const struct histogram *h, double q) {
    uint64_t wanted = q * h->n, seen = 0;
    for (int i = 0; i < OCTAVES * STEPS; i++)
        if ((seen += h->counts[i]) > wanted)
            return (double)(1ULL << i / STEPS) * (1 + (i % STEPS + .5) / STEPS) / 1e3;
    return 0;
}

void note_late(ns_t late) {
    add(&lates, late);
}

void note_chunk(struct connection *c, ns_t now) {
    if (c->sent == 0) {
        c->first_at = now;
        add(&ttfts, now - c->read_at);
    } else {
        add(&gaps, now - c->last_at);
    }
    c->last_at = now;
    if (stamps_len < MAX_STAMPS)
        stamps[stamps_len++] = (struct stamp){(uint32_t)c->request, c->sent, now};
    else
        stamps_lost++;
}

void note_done(const struct connection *c) {
    if (rows_len == rows_cap)
        rows = realloc(rows, (rows_cap = rows_cap ? rows_cap * 2 : 4096) * sizeof *rows);
    struct row *row = &rows[rows_len++];
    *row = (struct row){.request = c->request,
                        .read_at = c->read_at,
                        .first_at = c->first_at,
                        .last_at = c->last_at,
                        .chunks = c->chunks,
                        .port = c->peer_port};
    memcpy(row->key, c->key, sizeof row->key);
}

struct text {
    char *bytes;
    size_t len, cap;
};

__attribute__((format(printf, 2, 3))) static void append(struct text *t, const char *format, ...) {
    va_list arguments;
    if (t->len + 512 > t->cap)
        t->bytes = realloc(t->bytes, t->cap = t->cap * 2 + 8192);
    va_start(arguments, format);
    t->len += vsnprintf(t->bytes + t->len, 512, format, arguments);
    va_end(arguments);
}

static int reset(struct connection *c, const char *path, const char *end) {
    uint64_t connections = counters.connections, streams = counters.streams, requests = counters.requests;
    memset(&ttfts, 0, sizeof ttfts);
    memset(&gaps, 0, sizeof gaps);
    memset(&lates, 0, sizeof lates);
    rows_len = stamps_len = stamps_lost = 0;
    /* requests go on counting, so that no id comes twice */
    counters = (struct counters){
        .connections = connections, .streams = streams, .max_streams = streams, .requests = requests};
    read_settings(&defaults, path, end);
    return reply(c, 200, "application/json", "{}", 2);
}

static int page_of(struct connection *c, const char *type, struct text *t) {
    int state = reply(c, 200, type, t->bytes, t->len);
    free(t->bytes);
    return state;
}

static int log_page(struct connection *c) {
    struct text t = {0};
    append(&t, "request,read_ns,first_ns,last_ns,chunks,port,key\n");
    for (const struct row *r = rows; r < rows + rows_len; r++)
        append(&t, "%lu,%ld,%ld,%ld,%u,%u,%s\n", r->request, r->read_at, r->first_at, r->last_at, r->chunks, r->port, r->key);
    return page_of(c, "text/csv", &t);
}

static void append_histogram(struct text *t, const char *name, const struct histogram *h) {
    append(t, ",\"%s\":{\"n\":%lu,\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f}", name, h->n,
           h->n ? h->sum / h->n / 1e3 : 0, quantile_us(h, .5), quantile_us(h, .9), quantile_us(h, .99),
           quantile_us(h, .999));
}

static int stats_page(struct connection *c) {
    struct text t = {0};
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    append(&t, "{\"now_ns\":%ld,\"utime_s\":%ld.%06ld,\"stime_s\":%ld.%06ld", now_ns(), usage.ru_utime.tv_sec,
           usage.ru_utime.tv_usec, usage.ru_stime.tv_sec, usage.ru_stime.tv_usec);
    append(&t, ",\"requests\":%lu,\"done\":%lu,\"events\":%lu,\"bytes\":%lu,\"blocked\":%lu,\"aborted\":%lu", counters.requests,
           counters.done, counters.events, counters.bytes, counters.blocked, counters.aborted);
    append(&t, ",\"connections\":%lu,\"streams\":%lu,\"max_streams\":%lu,\"stamps\":%zu,\"stamps_lost\":%zu",
           counters.connections, counters.streams, counters.max_streams, stamps_len, stamps_lost);
    append_histogram(&t, "ttft_us", &ttfts);
    append_histogram(&t, "gap_us", &gaps);
    append_histogram(&t, "late_us", &lates);
    append(&t, "}\n");
    return page_of(c, "application/json", &t);
}

int control_page(struct connection *c, const char *path, const char *end) {
    if (!strncmp(path, "/__reset", 8))
        return reset(c, path, end);
    if (!strncmp(path, "/__log", 6))
        return log_page(c);
    if (!strncmp(path, "/__stamps", 9))
        return reply(c, 200, "application/octet-stream", (const char *)stamps, stamps_len * sizeof *stamps);
    return stats_page(c);
}
