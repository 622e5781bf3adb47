// Runs the author's file in node: loads it, then answers one line of JSON for each line of JSON.
// Requests come from file 3, answers go to file 4: the author finds standard input at its end, and what the author prints
// goes to standard error.
import { writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { pathToFileURL } from 'node:url';

function say(line) {
  const bytes = Buffer.from(line + '\n');
  for (let at = 0; at < bytes.length;) {
    try {
      at += writeSync(4, bytes, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

function account(error) {
  return '!' + JSON.stringify(String(error?.stack ?? error));
}

let answer;
try {
  const loaded = await import(pathToFileURL(process.argv[2]).href);
  const whole = loaded.default;
  answer = [loaded.compute_implications, whole?.compute_implications, whole, loaded.handler, whole?.handler]
    .find((candidate) => typeof candidate === 'function');
  if (!answer) {
    throw new Error('the file exports no function: export compute_implications(input), handler(input) or a default function');
  }
  say('"ready"');
} catch (error) {
  say(account(error));
  process.exit(1);
}

async function respond(line) {
  try {
    const result = JSON.stringify(await answer(JSON.parse(line)));
    say(result === undefined ? '!"the function returned nothing that JSON can express"' : result);
  } catch (error) {
    say(account(error));
  }
}

let pending = [];
for await (const chunk of new Socket({ fd: 3, readable: true, writable: false })) {
  let from = 0;
  for (let at; (at = chunk.indexOf(10, from)) >= 0; from = at + 1) {
    pending.push(chunk.subarray(from, at));
    const line = Buffer.concat(pending).toString();
    pending = [];
    await respond(line);
  }
  pending.push(chunk.subarray(from));
}
process.exit(0);
