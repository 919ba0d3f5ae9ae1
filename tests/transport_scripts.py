"""Ways in which a server can answer a request, as scripts."""

import asyncio
import itertools

from scripted_server import CHUNKED_HEAD, UNFRAMED_HEAD, Peer, Request, delta, event, role, whole_answer


async def good(peer: Peer, _: Request) -> None:
    await peer.stream(*whole_answer())


async def unframed(peer: Peer, _: Request) -> None:
    await peer.send(UNFRAMED_HEAD + b"".join(whole_answer()))
    peer.close()


async def old_protocol(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b"".join(whole_answer()))
    peer.close()


async def says_continue_first(peer: Peer, request: Request) -> None:
    await peer.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
    await good(peer, request)


async def with_trailers(peer: Peer, _: Request) -> None:
    body = b"".join(b"%X;a=b\r\n%s\r\n" % (len(part), part) for part in whole_answer())
    await peer.send(CHUNKED_HEAD + body + b"0\r\nX-Took: 5\r\n\r\n")


async def byte_by_byte(peer: Peer, _: Request) -> None:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in whole_answer())
    for byte in CHUNKED_HEAD + body + b"0\r\n\r\n":
        await peer.send(bytes([byte]))
        await asyncio.sleep(0)


async def open_after_done(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    for part in whole_answer():
        await peer.send_chunk(part)
    await peer.wait_for_end()


async def silent(peer: Peer, _: Request) -> None:
    await peer.wait_for_end()


async def half_a_head(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    await peer.wait_for_end()


async def headers_only(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    await peer.wait_for_end()


async def stalls_after_three(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    for n in range(3):
        await peer.send_chunk(delta(f"{n}", tokens=n + 1))
    await peer.wait_for_end()


async def trickles(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    for n in itertools.count(1):
        await peer.send_chunk(delta("x", tokens=n))
        await asyncio.sleep(0.02)


async def says_no(peer: Peer, _: Request) -> None:
    await peer.answer({"object": "error", "message": "max_new_tokens must be at least 0"}, 400)


async def redirects(peer: Peer, request: Request) -> None:
    assert request.path == "/v1/chat/completions"
    await peer.send(b"HTTP/1.1 307 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")


async def no_content(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")


async def too_many(peer: Peer, _: Request) -> None:
    await peer.answer({"error": {"message": "slow down"}}, 429)


async def queue_full_in_stream(peer: Peer, _: Request) -> None:
    await peer.stream(event({"error": {"message": "The request queue is full.", "code": 503}}))


async def dies_in_stream(peer: Peer, _: Request) -> None:
    error = event({"error": {"message": "CUDA error", "code": 500}})
    await peer.stream(role(), delta("a", tokens=1), error)


async def closes_mid_chunks(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    await peer.send_chunk(delta("a", tokens=1))
    peer.close()


async def closes_in_a_size_line(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    await peer.send_chunk(delta("a", tokens=1))
    await peer.send(b"1")
    peer.close()


async def closes_before_length(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + delta("a", tokens=1))
    peer.close()


async def closes_unframed(peer: Peer, _: Request) -> None:
    await peer.send(UNFRAMED_HEAD + delta("a", tokens=1))
    peer.close()


async def no_token(peer: Peer, _: Request) -> None:
    await peer.stream(role(), event(b"[DONE]"))


async def speaks_ssh(peer: Peer, _: Request) -> None:
    await peer.send(b"SSH-2.0-OpenSSH_9.6\r\n")
    await peer.wait_for_end()


async def endless_header(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000)
    await peer.wait_for_end()


async def two_lengths(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")
    await peer.wait_for_end()


async def half_json(peer: Peer, _: Request) -> None:
    await peer.stream(role(), event(b'{"choices":['))


async def hangs_up(peer: Peer, _: Request) -> None:
    peer.close()


async def hangs_up_in_the_head(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    peer.close()


async def resets_at_once(peer: Peer, _: Request) -> None:
    peer.reset()


async def resets_mid_chunks(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    await peer.send_chunk(delta("a", tokens=1))
    await asyncio.sleep(0.05)  # a reset overtakes bytes that the client has not read
    peer.reset()


async def resets_before_length(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + delta("a", tokens=1))
    await asyncio.sleep(0.05)
    peer.reset()
