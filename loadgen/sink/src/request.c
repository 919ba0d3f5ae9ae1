/* HTTP/1.1 in: keep-alive, bodies with a content-length, one request at a time on a connection. */
#include "sink.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define FIRST_BUFFER 4096
#define LAST_BUFFER 65536
#define KEPT_BYTES 4096   /* of a large body, at each end: settings stand there, the prompt between them */
#define BYTES_PER_TOKEN 4 /* of a prompt, so that its length costs no scan */

static const char MODELS[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"default\",\"object\":\"model\",\"owned_by\":\"sink\",\"root\":\"default\","
    "\"max_model_len\":1048576}],\"status\":\"ok\",\"model_path\":\"default\",\"internal_states\":[{}],"
    "\"loadgen_sim\":{\"simulated\":true,\"time_scale\":1}}";
/* Pages that a client would misread if they were there. */
static const char *const ABSENT[] = {"/tokenize", "/detokenize", "/metrics", "/props", "/slots"};

long number_after(const char *from, const char *end, const char *key, long otherwise) {
    const char *at = memmem(from, end - from, key, strlen(key));
    if (!at)
        return otherwise;
    for (at += strlen(key); at < end && (*at == ' ' || *at == ':'); at++) {
    }
    return at < end && isdigit((unsigned char)*at) ? atol(at) : otherwise;
}

static long query_number(const char *from, const char *end, const char *name, long otherwise) {
    char key[16];
    snprintf(key, sizeof key, "&%s=", name);
    long value = number_after(from, end, key, otherwise);
    key[0] = '?';
    return number_after(from, end, key, value);
}

void read_settings(struct settings *s, const char *query, const char *end) {
    s->chunks = query_number(query, end, "n", s->chunks);
    s->interval_us = query_number(query, end, "iv", s->interval_us);
    s->ttft_us = query_number(query, end, "ttft", s->ttft_us);
    s->lock_step = query_number(query, end, "sync", s->lock_step);
    s->gap_us = query_number(query, end, "gap", s->gap_us);
    s->chunk_tokens = query_number(query, end, "tok", s->chunk_tokens);
    s->running_usage = query_number(query, end, "usage", s->running_usage);
    if (s->chunk_tokens < 1)
        s->chunk_tokens = 1;
}

static int is_true(const char *body, const char *end, const char *key) {
    const char *at = memmem(body, end - body, key, strlen(key));
    return at && memmem(at, end - at < 40 ? end - at : 40, "true", 4);
}

static const char *after(const char *from, const char *end, const char *what) {
    const char *at = memmem(from, end - from, what, strlen(what));
    return at ? at + strlen(what) : NULL;
}

/* The first characters of the first message (a client's salt), and the prompt's length by its bytes. */
static void read_prompt(struct connection *c, const char *body, const char *end) {
    const char *text = after(body, end, c->is_text ? "\"prompt\"" : "\"content\""), *stop = NULL;
    int i = 0;
    c->prompt_tokens = 16;
    while (text && (*text == ':' || *text == ' ')) /* the buffer ends in a zero */
        text++;
    if (text && *text == '"')
        for (text++; i < KEY_CHARS && text + i < end && text[i] != '"'; i++)
            c->key[i] = isalnum((unsigned char)text[i]) ? text[i] : '_';
    c->key[i] = 0;
    if (text && c->is_text)
        stop = memchr(text, '"', end - text);
    for (const char *at = text; at && !c->is_text && (at = memmem(at, end - at, "\"}", 2)); at++)
        stop = at; /* the last message's end */
    if (stop)
        c->prompt_tokens = (stop - text + c->dropped) / BYTES_PER_TOKEN + 1;
}

static int completion(struct connection *c, const char *path, const char *path_end, const char *body, const char *end,
                      ns_t now) {
    struct settings s = defaults;
    long max_tokens = number_after(body, end, "\"max_completion_tokens\"", number_after(body, end, "\"max_tokens\"", 0));
    c->request = ++counters.requests;
    c->is_text = !memmem(path, path_end - path, "/chat/", 6);
    read_settings(&s, path, path_end);
    if (max_tokens && query_number(path, path_end, "n", 0) == 0)
        s.chunks = (max_tokens + s.chunk_tokens - 1) / s.chunk_tokens;
    c->max_tokens = max_tokens;
    s.running_usage |= is_true(body, end, "\"continuous_usage_stats\"");
    read_prompt(c, body, end);
    snprintf(c->id, sizeof c->id, "%032lx", c->request);
    return is_true(body, end, "\"stream\"") ? begin_stream(c, &s, now) : answer_whole(c);
}

static int other_page(struct connection *c, const char *path, const char *path_end) {
    for (size_t i = 0; i < sizeof ABSENT / sizeof *ABSENT; i++)
        if (!strncmp(path, ABSENT[i], strlen(ABSENT[i])) && path + strlen(ABSENT[i]) <= path_end)
            return reply(c, 404, "application/json", "{}", 2);
    return reply(c, 200, "application/json", MODELS, strlen(MODELS));
}

static int answer(struct connection *c, const char *head, const char *body, const char *end) {
    ns_t now = now_ns();
    const char *path = memchr(head, ' ', body - head);
    const char *path_end = path ? memchr(path + 1, ' ', body - path - 1) : NULL;
    if (!path_end)
        return -1;
    path++;
    if (!strncmp(path, "/__", 3))
        return control_page(c, path, path_end);
    if (*head == 'P' && memmem(path, path_end - path, "/completions", 12))
        return completion(c, path, path_end, body, end, now);
    return other_page(c, path, path_end);
}

/* Finds the end of the head and the body's length. 1 found, 0 not there yet, -1 a head that is not understood. */
static int read_head(struct connection *c) {
    const char *end = memmem(c->in, c->in_len, "\r\n\r\n", 4);
    if (!end)
        return 0;
    c->head_len = end + 4 - c->in;
    c->body_len = c->dropped = 0;
    for (const char *line = c->in; line < end && (line = memchr(line, '\n', end - line)); ) {
        line++;
        if (!strncasecmp(line, "content-length:", 15))
            c->body_len = strtoul(line + 15, NULL, 10);
        if (!strncasecmp(line, "transfer-encoding:", 18))
            return -1;
    }
    return 1;
}

static int take_requests(struct connection *c) {
    while (c->in_len) {
        if (!c->head_len) {
            int found = read_head(c);
            if (found <= 0)
                return found;
        }
        if (c->in_len - c->head_len + c->dropped < c->body_len)
            return 0;
        if (c->is_streaming) /* a pipelined request */
            return -1;
        size_t whole = c->head_len + c->body_len - c->dropped;
        if (answer(c, c->in, c->in + c->head_len, c->in + whole) < 0)
            return -1;
        c->in_len -= whole;
        c->head_len = 0;
        memmove(c->in, c->in + whole, c->in_len);
    }
    return 0;
}

/* Room for more bytes: a larger buffer, or the middle of the body dropped. -1: a head that does not end. */
static int make_room(struct connection *c) {
    if (c->in_cap < LAST_BUFFER) {
        c->in_cap = c->in_cap ? c->in_cap * 4 : FIRST_BUFFER;
        c->in = realloc(c->in, c->in_cap + 1);
        return 0;
    }
    size_t start = c->head_len + KEPT_BYTES, stop = c->in_len - KEPT_BYTES;
    if (!c->head_len || start >= stop)
        return -1;
    memmove(c->in + start, c->in + stop, KEPT_BYTES);
    c->dropped += stop - start;
    c->in_len = start + KEPT_BYTES;
    return 0;
}

int read_requests(struct connection *c) {
    for (;;) {
        if (c->in_len == c->in_cap && make_room(c) < 0)
            return -1;
        size_t room = c->in_cap - c->in_len;
        ssize_t got = recv(c->fd, c->in + c->in_len, room, 0);
        if (got == 0)
            return -1;
        if (got < 0)
            return errno == EAGAIN ? 0 : -1;
        c->in_len += got;
        c->in[c->in_len] = 0;
        if (take_requests(c) < 0)
            return -1;
        if ((size_t)got < room)
            return 0;
    }
}
