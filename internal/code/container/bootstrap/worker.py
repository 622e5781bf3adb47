"""Runs the author's file in Python: loads it, then answers one line of JSON for each line of JSON."""

import asyncio
import importlib.util
import inspect
import json
import os
import sys
import traceback

# Standard output belongs to the answers: what the author prints, in C code too, goes to standard error. Standard input
# belongs to the requests: the author finds it at its end.
answers = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)
sys.stdout.reconfigure(line_buffering=True)
requests = os.fdopen(os.dup(0), "rb")
nothing = os.open(os.devnull, os.O_RDONLY)
os.dup2(nothing, 0)
os.close(nothing)


def say(line):
    data = memoryview(line.encode() + b"\n")
    while data:
        data = data[answers.write(data):]


def account():
    summary = "".join(traceback.format_exception_only(*sys.exc_info()[:2])).strip().splitlines()[-1:]
    return "!" + json.dumps("\n".join([*summary, traceback.format_exc()]))


def load(path):
    sys.path[:0] = [*dict.fromkeys([os.path.dirname(path), "/app"]), "/app/.packages"]
    spec = importlib.util.spec_from_file_location("entrypoint", path)
    if spec is None:
        raise ImportError("the entry point must be a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["entrypoint"] = module
    spec.loader.exec_module(module)
    for name in ("compute_implications", "handler"):
        function = getattr(module, name, None)
        if callable(function):
            return function
    raise AttributeError("the file has no function compute_implications(input) and no handler(input)")


try:
    function = load(sys.argv[1])
except BaseException:
    say(account())
    sys.exit(1)
say('"ready"')

for line in requests:
    try:
        result = function(json.loads(line))
        if inspect.isawaitable(result):
            async def wait(awaitable):
                return await awaitable
            result = asyncio.run(wait(result))
        reply = json.dumps(result, allow_nan=False, separators=(",", ":"))
    except Exception:
        reply = account()
    say(reply)
