/* Sockets: what the peer does not take at once is kept and sent when it can be. */
#include "sink.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static struct connection *connections[MAX_CONNECTIONS];
static int poller;

struct connection *connection_of(int fd) {
    return connections[fd];
}

struct connection *open_connection(int epoll, int fd, uint16_t peer_port) {
    struct connection *c = calloc(1, sizeof *c);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    poller = epoll;
    c->fd = fd;
    c->peer_port = peer_port;
    c->heap_at = c->ready_at = NOWHERE;
    connections[fd] = c;
    counters.connections++;
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    return c;
}

void close_connection(struct connection *c) {
    if (c->is_streaming)
        abort_stream(c);
    unqueue(c);
    connections[c->fd] = NULL;
    counters.connections--;
    close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

static void want_out(struct connection *c, int wanted) {
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.fd = c->fd};
    if (wanted == c->wants_out)
        return;
    c->wants_out = wanted;
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
}

static void keep(struct connection *c, const char *bytes, size_t len) {
    if (c->out_len + len > c->out_cap)
        c->out = realloc(c->out, c->out_cap = c->out_len + len + 1024);
    memcpy(c->out + c->out_len, bytes, len);
    c->out_len += len;
    want_out(c, 1);
}

int put(struct connection *c, const char *bytes, size_t len) {
    ssize_t sent = 0;
    if (!c->out_len) {
        sent = send(c->fd, bytes, len, MSG_NOSIGNAL);
        if (sent == (ssize_t)len)
            return 0;
        if (sent < 0 && errno != EAGAIN)
            return -1;
        if (sent < 0)
            sent = 0;
        counters.blocked++;
    }
    keep(c, bytes + sent, len - sent);
    return 1;
}

int flush_rest(struct connection *c) {
    ssize_t sent = send(c->fd, c->out, c->out_len, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN ? 1 : -1;
    c->out_len -= sent;
    memmove(c->out, c->out + sent, c->out_len);
    if (c->out_len)
        return 1;
    want_out(c, 0);
    return 0;
}

int reply(struct connection *c, int status, const char *type, const char *body, size_t len) {
    char head[256];
    int head_len = snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n", status,
                            status == 200 ? "OK" : "Not Found", type, len);
    return put(c, head, head_len) < 0 || put(c, body, len) < 0 ? -1 : 0;
}
