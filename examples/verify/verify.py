#!/usr/bin/env python3
"""verify.py FILE VKEY: checks a whole export, or the certificate of an erasure, by the key of an environment's log. It uses nothing of j17."""
import base64, functools, hashlib, json, re, sys

sha = lambda *parts: hashlib.sha256(b"".join(parts)).digest()
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493  # Ed25519, RFC 8032
D = -121665 * pow(121666, P - 2, P) % P


def point(raw):
    y, odd = int.from_bytes(raw, "little") % 2**255, raw[31] >> 7
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = next((x for r in (1, pow(2, (P - 1) // 4, P)) for x in [pow(x2, (P + 3) // 8, P) * r % P] if x * x % P == x2), None)
    assert x is not None and y < P, "the key or the signature is no point of the curve"
    return (x, y, 1, x * y % P) if x % 2 == odd else (P - x, y, 1, -x * y % P)


def add(p, q):
    a, b, c, d = (p[1] - p[0]) * (q[1] - q[0]), (p[1] + p[0]) * (q[1] + q[0]), 2 * p[3] * q[3] * D, 2 * p[2] * q[2]
    return (b - a) * (d - c) % P, (d + c) * (b + a) % P, (d - c) * (d + c) % P, (b - a) * (b + a) % P


def times(n, p):
    return (0, 1, 1, 0) if n == 0 else add(times(n - 1, p), p) if n % 2 else times(n // 2, add(p, p))


def opened(note, vkey):
    """The lines of a signed note (C2SP) that the key has signed."""
    text, _, signatures = note.rpartition("\n\n")
    (name, key_id, key), found = vkey.split("+", 2), re.findall("^\u2014 (\\S+) (\\S+)$", signatures, re.M)
    key, found = base64.b64decode(key)[1:], [r[4:] for n, s in found for r in [base64.b64decode(s)] if (n, r[:4].hex(), len(r)) == (name, key_id, 68)]
    assert found, "the key has not signed it"
    sig = found[0]
    s, h = int.from_bytes(sig[32:], "little"), int.from_bytes(hashlib.sha512(sig[:32] + key + (text + "\n").encode()).digest(), "little") % L
    base = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
    a, b = times(s, base), add(point(sig[:32]), times(h, point(key)))  # s * base = R + h * key
    assert s < L and (a[0] * b[2] - b[0] * a[2]) % P == 0 == (a[1] * b[2] - b[1] * a[2]) % P, "the signature does not hold"
    return text.split("\n")


def export(lines, vkey):
    chains, edge, n = {}, [], 0  # edge: the roots of the full trees that the leaves so far make, with their sizes
    for n, line in enumerate(lines[:-1], 1):
        event, chain, leaf = re.fullmatch(rb'(.*?)(?:,"handle":"[^"]*")?(?:,"public_id":"[^"]*")?,"chain":"(\w{64})"(?:,"leaf":"(\w{64})")?}', line).groups()
        own, e = sha(b"\0", event, b"}"), json.loads(event + b"}")  # the leaf of the very bytes that were stored
        chains[e["key"]] = sha(chains.get(e["key"], bytes(32)), own)
        assert chains[e["key"]].hex() == chain.decode(), f"line {n}: the chain of {e['key']} breaks at event {e['stream_id']}"
        assert not leaf or e["type"] == "_was_tombstoned", f"line {n}: event {e['stream_id']} of {e['key']} was not erased"
        edge.append((bytes.fromhex(leaf.decode()) if leaf else own, 1))
        while len(edge) > 1 and edge[-1][1] == edge[-2][1]:
            (r, k), (l, _) = edge.pop(), edge.pop()
            edge.append((sha(b"\1", l, r), 2 * k))
    root = functools.reduce(lambda right, left: sha(b"\1", left, right), [r for r, _ in edge[::-1]]) if edge else sha()
    origin, size, signed = opened(json.loads(lines[-1])["checkpoint"], vkey)[:3]
    assert (int(size), base64.b64decode(signed)) == (n, root), f"these are not the {size} events that were signed"
    return f"{n} events of {origin}, root {root.hex()}"


try:
    data, vkey = open(sys.argv[1], "rb").read(), sys.argv[2]
    if data.startswith(b"{"):
        print("The export holds:", export(data.splitlines(), vkey))
    else:
        kind, body = opened(data.decode(), vkey)[:2]
        c = json.loads(body)
        assert kind == "j17 erasure certificate" and c["events"] == sum(s["event_count"] for s in c["affected_streams"]), "it contradicts itself"
        print(f"The certificate holds: {c['events']} events of {c['key']} and what went with it were erased at {c['executed_at']}")
except (AssertionError, AttributeError, ValueError, KeyError) as e:
    sys.exit(f"{sys.argv[1]} does not hold: {e}")
