/* Events out, shaped like SGLang 0.5's: role chunk, content chunks, finish chunk, usage chunk, [DONE].
 *
 * An event is a template (chunk-size line, "data: {json}", CRLF) whose id, stamp and counts are written in place. Each
 * goes out in one send(), and carries the time just before it as "sts". */
#include "sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 8
#define STAMP_DIGITS 20
#define COUNT_DIGITS 10
#define MAX_TEXT 4000

struct template {
    char *bytes;
    uint32_t len, id_at, stamp_at, prompt_at, total_at, output_at; /* a count at 0: not there */
};

static struct template role_event, finish_event, text_finish_event;
static struct template chat_events[2][WORDS], text_events[2][WORDS]; /* [with running usage] */
static const char *const words[WORDS] = {" the", " latency", " of", " a", " server", " under", " load", " is"};
static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 19:04:17 GMT\r\nserver: uvicorn\r\n"
    "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
static const char DONE[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

static uint32_t place_of(const struct template *t, const char *name) {
    const char *at = strstr(t->bytes, name);
    return at ? at + strlen(name) - t->bytes : 0;
}

static void make(struct template *t, int is_text, const char *delta, const char *finish, int has_usage) {
    char json[3 * MAX_TEXT], usage[200] = "null";
    if (has_usage)
        snprintf(usage, sizeof usage,
                 "{\"prompt_tokens\":%*d,\"total_tokens\":%*d,\"completion_tokens\":%*d,\"prompt_tokens_details\":null}",
                 COUNT_DIGITS, 0, COUNT_DIGITS, 0, COUNT_DIGITS, 0);
    int len = snprintf(json, sizeof json,
                       "data: {\"id\":\"%0*d\",\"object\":\"%s\",\"created\":1764529457,\"model\":\"default\","
                       "\"choices\":[{\"index\":0,%s%s%s,\"logprobs\":null,\"finish_reason\":%s,\"matched_stop\":null}],"
                       "\"usage\":%s,\"sts\":\"%0*d\"}\n\n",
                       ID_CHARS, 0, is_text ? "text_completion" : "chat.completion.chunk",
                       is_text ? "" : "\"delta\":{", delta,
                       is_text ? "" : ",\"reasoning_content\":null,\"tool_calls\":null}", finish, usage, STAMP_DIGITS, 0);
    free(t->bytes);
    t->bytes = malloc(len + 32);
    t->len = sprintf(t->bytes, "%x\r\n%s\r\n", (unsigned)len, json);
    t->id_at = place_of(t, "\"id\":\"");
    t->stamp_at = place_of(t, "\"sts\":\"");
    t->prompt_at = place_of(t, "\"prompt_tokens\":");
    t->total_at = place_of(t, "\"total_tokens\":");
    t->output_at = place_of(t, "\"completion_tokens\":");
}

void make_templates(long text_bytes) {
    char delta[MAX_TEXT + 100], text[MAX_TEXT + 1];
    size_t wanted = text_bytes > MAX_TEXT ? MAX_TEXT : text_bytes < 0 ? 0 : text_bytes;
    make(&role_event, 0, "\"role\":\"assistant\",\"content\":\"\"", "null", 0);
    make(&finish_event, 0, "\"role\":null,\"content\":null", "\"length\"", 0);
    make(&text_finish_event, 1, "\"text\":\"\"", "\"length\"", 0);
    for (int i = 0; i < WORDS; i++) {
        size_t len = snprintf(text, sizeof text, "%s", words[i]);
        while (len < wanted)
            text[len++] = 'x';
        text[len] = 0;
        for (int usage = 0; usage < 2; usage++) {
            snprintf(delta, sizeof delta, "\"role\":null,\"content\":\"%s\"", text);
            make(&chat_events[usage][i], 0, delta, "null", usage);
            snprintf(delta, sizeof delta, "\"text\":\"%s\"", text);
            make(&text_events[usage][i], 1, delta, "null", usage);
        }
    }
}

/* JSON allows spaces before a number, but no zeros: counts are filled with spaces, the stamp is a string with zeros. */
static void write_digits(char *to, int width, uint64_t value, char fill) {
    for (int i = width - 1; i >= 0; i--, value /= 10)
        to[i] = value || i == width - 1 ? (char)('0' + value % 10) : fill;
}

static uint32_t tokens_so_far(const struct connection *c, uint32_t chunks) {
    uint32_t tokens = chunks * c->chunk_tokens;
    return c->max_tokens && tokens > c->max_tokens ? c->max_tokens : tokens;
}

static int put_event(struct connection *c, struct template *t, ns_t now) {
    memcpy(t->bytes + t->id_at, c->id, ID_CHARS);
    write_digits(t->bytes + t->stamp_at, STAMP_DIGITS, now, '0');
    if (t->output_at) {
        uint32_t output = tokens_so_far(c, c->sent + 1);
        write_digits(t->bytes + t->prompt_at, COUNT_DIGITS, c->prompt_tokens, ' ');
        write_digits(t->bytes + t->total_at, COUNT_DIGITS, c->prompt_tokens + output, ' ');
        write_digits(t->bytes + t->output_at, COUNT_DIGITS, output, ' ');
    }
    counters.events++;
    counters.bytes += t->len;
    return put(c, t->bytes, t->len);
}

int answer_whole(struct connection *c) {
    char body[600];
    uint32_t tokens = c->max_tokens ? c->max_tokens : 1;
    int len = snprintf(body, sizeof body,
                       "{\"id\":\"%s\",\"object\":\"chat.completion\",\"created\":1764529457,\"model\":\"default\",\"choices\":"
                       "[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"ok\"},\"text\":\"ok\","
                       "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u,"
                       "\"completion_tokens\":%u}}",
                       c->id, c->prompt_tokens, c->prompt_tokens + tokens, tokens);
    return reply(c, 200, "application/json", body, len);
}

/* When the first chunk is due: on a common tick (lock-step), or after the TTFT and a part of an interval, so that
 * streams that began together do not send together. */
static ns_t first_due_at(const struct connection *c, const struct settings *s, ns_t now) {
    ns_t due = now + s->ttft_us * 1000;
    if (c->interval && s->lock_step)
        return (due / c->interval + 1) * c->interval + c->fd * s->gap_us * 1000 % c->interval;
    if (c->interval && s->ttft_us)
        return due + (ns_t)((c->request * 0x9E3779B97F4A7C15ULL >> 40) * c->interval >> 24);
    return due;
}

int begin_stream(struct connection *c, const struct settings *s, ns_t now) {
    if (put(c, STREAM_HEAD, sizeof STREAM_HEAD - 1) < 0)
        return -1;
    c->is_streaming = 1;
    c->has_running_usage = s->running_usage != 0;
    c->sent = 0;
    c->chunks = s->chunks > 0 ? s->chunks : 1;
    c->chunk_tokens = s->chunk_tokens;
    c->interval = s->interval_us * 1000;
    c->read_at = now;
    c->due = first_due_at(c, s, now);
    if (++counters.streams > counters.max_streams)
        counters.max_streams = counters.streams;
    if (c->interval || s->ttft_us)
        pace(c);
    else
        make_ready(c);
    return 0;
}

static void end_stream(struct connection *c) {
    c->is_streaming = 0;
    counters.streams--;
    unqueue(c);
}

void abort_stream(struct connection *c) {
    counters.aborted++;
    end_stream(c);
}

static int finish(struct connection *c) {
    char json[600], event[700];
    uint32_t tokens = tokens_so_far(c, c->chunks);
    int len = snprintf(json, sizeof json,
                       "data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":1764529457,\"model\":\"default\","
                       "\"choices\":[],\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u,\"completion_tokens\":%u,"
                       "\"prompt_tokens_details\":null}}\n\n",
                       c->id, c->prompt_tokens, c->prompt_tokens + tokens, tokens);
    int event_len = snprintf(event, sizeof event, "%x\r\n%s\r\n", (unsigned)len, json);
    if (put_event(c, c->is_text ? &text_finish_event : &finish_event, now_ns()) < 0)
        return -1;
    if (put(c, event, event_len) < 0 || put(c, DONE, sizeof DONE - 1) < 0)
        return -1;
    counters.events += 2;
    counters.done++;
    end_stream(c);
    note_done(c);
    return 2;
}

int step(struct connection *c) {
    ns_t now = now_ns();
    if (c->interval)
        note_late(now - c->due);
    if (c->sent == 0 && !c->is_text) {
        if (put_event(c, &role_event, now) < 0)
            return -1;
        now = now_ns();
    }
    struct template *events = (c->is_text ? text_events : chat_events)[c->has_running_usage];
    int state = put_event(c, events + c->sent % WORDS, now);
    if (state < 0)
        return -1;
    note_chunk(c, now);
    return ++c->sent < c->chunks ? state : finish(c);
}
