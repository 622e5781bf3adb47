#!/usr/bin/env python3
"""verify.py FILE VKEY [STREAMS]: checks a whole export, a checkpoint, or the certificate of an erasure, by the key of an environment's log. It uses nothing of j17."""
import base64, hashlib, json, re, sys

sha = lambda *parts: hashlib.sha256(b"".join(parts)).digest()
P, L, D = (p := 2**255 - 19), 2**252 + 27742317777372353535851937790883648493, -121665 * pow(121666, -1, p) % p  # Ed25519, RFC 8032

def fail(why): raise ValueError(why)  # and no assertions, which python -O leaves out

def point(raw):
    y, odd = int.from_bytes(raw, "little") % 2**255, raw[31] >> 7
    x2 = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = next((x for r in (1, pow(2, (P - 1) // 4, P)) for x in [pow(x2, (P + 3) // 8, P) * r % P] if x * x % P == x2), None)
    x is not None and y < P or fail("the key or the signature is no point of the curve")
    return (x if x % 2 == odd else P - x, y)

def add(p, q):
    return ((p[0] * q[1] + p[1] * q[0]) * pow(1 + (t := D * p[0] * p[1] * q[0] * q[1]), -1, P) % P, (p[1] * q[1] + p[0] * q[0]) * pow(1 - t, -1, P) % P)

times = lambda n, p: (0, 1) if n == 0 else add(times(n - 1, p), p) if n % 2 else times(n // 2, add(p, p))

def opened(note, vkey):  # the lines of a signed note (C2SP), if the key has signed it
    (text, _, signatures), (name, key_id, key) = note.rpartition("\n\n"), vkey.split("+", 2)
    key, signed = base64.b64decode(key)[1:], ((n, base64.b64decode(s)) for n, s in re.findall("^\u2014 (\\S+) (\\S+)$", signatures, re.M))
    len(sig := {(n, s[:4].hex()): s[4:] for n, s in signed}.get((name, key_id), b"")) == 64 or fail("the key has not signed it")
    s, h = (int.from_bytes(b, "little") for b in (sig[32:], hashlib.sha512(sig[:32] + key + (text + "\n").encode()).digest()))
    s < L and times(s, point(b"\x58" + b"\x66" * 31)) == add(point(sig[:32]), times(h % L, point(key))) or fail("the signature does not hold")
    return text.split("\n")

def root(leaves):  # RFC 6962: on the left as many as a power of two has
    return sha(b"\1", root(leaves[:(k := (1 << (len(leaves) - 1).bit_length()) // 2)]), root(leaves[k:])) if len(leaves) > 1 else (leaves or [sha()])[0]

def export(lines, vkey):
    chains, leaves = {}, []
    for n, line in lines[:-1]:
        event, chain, leaf = re.fullmatch(rb'(.*?)(?:,"handle":"[^"]*")?(?:,"public_id":"[^"]*")?,"chain":"(\w{64})"(?:,"leaf":"(\w{64})")?}', line).groups()
        own, e = sha(b"\0", event, b"}"), json.loads(event + b"}")  # the leaf of the very bytes that were stored
        chains[e["key"]] = sha(chains.get(e["key"], bytes(32)), own)
        chains[e["key"]].hex() == chain.decode() or fail(f"line {n}: the chain of {e['key']} breaks at event {e['stream_id']}")
        not leaf or e["type"] == "_was_tombstoned" or fail(f"line {n}: event {e['stream_id']} of {e['key']} was not erased")
        leaves.append(bytes.fromhex(leaf.decode()) if leaf else own)
    origin, size, signed, *_ = opened(json.loads(lines[-1][1])["checkpoint"], vkey)
    (int(size), base64.b64decode(signed)) == (len(leaves), (top := root(leaves))) or fail(f"these are not the {size} events that were signed")
    return f"The export holds: {size} events of {origin}, root {top.hex()}"

def checked(note, vkey, rows):  # rows are those of all streams, where the certificate has only the first of them
    if (lines := opened(note, vkey))[0] != "j17 erasure certificate":
        not rows or fail("it is a checkpoint, which is about no streams")
        return f"The checkpoint holds: {lines[0]} has {int(lines[1])} events, root {base64.b64decode(lines[2]).hex()}"
    seen, size = rows if "affected_root" in (c := json.loads(lines[1])) and rows else c["affected_streams"], c.get("affected_count", len(c["affected_streams"]))
    total = sum(r["event_count"] for r in seen), root([sha(b"\0", json.dumps(r, separators=(",", ":")).encode()) for r in seen]).hex()
    total == (c["events"], c.get("affected_root", total[1])) or not rows and len(seen) < size or fail("these are not its streams")
    return f"The certificate holds: {c['events']} events of {c['key']} and what went with it were erased at {c['executed_at']}; {len(seen)} of {size} streams seen"

if len(sys.argv) not in (3, 4): sys.exit(print(__doc__, file=sys.stderr) or 2)
try:
    data, vkey, rows = open(sys.argv[1], "rb").read(), sys.argv[2], [r for f in sys.argv[3:] for r in json.load(open(f))]
    print(export([(n, line) for n, line in enumerate(data.splitlines(), 1) if line], vkey) if data.startswith(b"{") else checked(data.decode(), vkey, rows))
except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as e:
    sys.exit(f"{sys.argv[1]} does not hold: {e}")
