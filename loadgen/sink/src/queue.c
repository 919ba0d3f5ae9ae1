/* Who sends next: a heap of paced streams by due time, a ring of unpaced ones that take turns. */
#include "sink.h"

static struct connection *heap[MAX_CONNECTIONS], *ready[MAX_CONNECTIONS];
static int heap_len, ready_len, turn;

static void put_at(int at, struct connection *c) {
    heap[at] = c;
    c->heap_at = at;
}

static void sift_down(int at) {
    struct connection *c = heap[at];
    for (int child; (child = 2 * at + 1) < heap_len; at = child) {
        if (child + 1 < heap_len && heap[child + 1]->due < heap[child]->due)
            child++;
        if (heap[child]->due >= c->due)
            break;
        put_at(at, heap[child]);
    }
    put_at(at, c);
}

static void sift_up(int at) {
    struct connection *c = heap[at];
    for (int parent; at && heap[parent = (at - 1) / 2]->due > c->due; at = parent)
        put_at(at, heap[parent]);
    put_at(at, c);
}

void pace(struct connection *c) {
    put_at(heap_len++, c);
    sift_up(heap_len - 1);
}

void move_later(struct connection *c) {
    sift_down(c->heap_at);
}

void make_ready(struct connection *c) {
    if (c->ready_at != NOWHERE)
        return;
    c->ready_at = ready_len;
    ready[ready_len++] = c;
}

static void leave_heap(struct connection *c) {
    int at = c->heap_at;
    struct connection *last = heap[--heap_len];
    c->heap_at = NOWHERE;
    if (last == c)
        return;
    put_at(at, last);
    sift_up(at);
    sift_down(last->heap_at);
}

static void leave_ring(struct connection *c) {
    struct connection *last = ready[--ready_len];
    ready[c->ready_at] = last;
    last->ready_at = c->ready_at;
    c->ready_at = NOWHERE;
}

void unqueue(struct connection *c) {
    if (c->heap_at != NOWHERE)
        leave_heap(c);
    if (c->ready_at != NOWHERE)
        leave_ring(c);
}

struct connection *first_due(void) {
    return heap_len ? heap[0] : NULL;
}

struct connection *next_ready(int skip) {
    turn += skip;
    if (turn >= ready_len)
        turn = 0;
    return ready_len ? ready[turn] : NULL;
}
