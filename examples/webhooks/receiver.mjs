// Receives what a listener of j17 is told, checks that it comes from there, and prints it. It needs nothing but Node.js:
//
//   node receiver.mjs SECRET_FILE [PORT]

import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const TOLERANCE = 5 * 60; // seconds: older messages may be copies that somebody has kept
const MAX_BODY = 2 << 20; // bytes: more than any message has
const REMEMBERED = 10_000; // ids of messages, so that one that comes twice counts once

const [secretFile, port = "9000"] = process.argv.slice(2);
const key = Buffer.from(readFileSync(secretFile, "utf8").trim().replace(/^whsec_/, ""), "base64");
const seen = new Set();

// genuine tells whether a message was signed with the secret, and lately. The bytes that came are what was signed.
function genuine(headers, body) {
  const id = headers["webhook-id"];
  const at = headers["webhook-timestamp"];
  if (!/^\d+$/.test(at ?? "") || Math.abs(Date.now() / 1000 - Number(at)) > TOLERANCE) return false;
  const want = createHmac("sha256", key).update(`${id}.${at}.`).update(body).digest();

  // After a rotation there are two.
  return (headers["webhook-signature"] ?? "").split(" ").some((text) => {
    const given = Buffer.from(text.replace(/^v1,/, ""), "base64");
    return given.length === want.length && timingSafeEqual(given, want);
  });
}

// take handles a message and returns the status: any but 2xx asks for it to be sent again.
function take(headers, body) {
  if (!genuine(headers, body)) return 401;
  const id = headers["webhook-id"];
  if (seen.has(id)) return 200;
  let message;
  try {
    message = JSON.parse(body);
  } catch {
    return 400;
  }
  console.log(JSON.stringify(message.event)); // what the application does with it
  seen.add(id);
  if (seen.size > REMEMBERED) seen.delete(seen.values().next().value);
  return 200;
}

const server = createServer((request, response) => {
  const parts = [];
  let size = 0;
  request.on("data", (part) => {
    size += part.length;
    if (size <= MAX_BODY) parts.push(part);
  });
  request.on("end", () => {
    response.statusCode = size > MAX_BODY ? 413 : take(request.headers, Buffer.concat(parts));
    response.end();
  });
});
server.listen(Number(port), "127.0.0.1", () => console.error(`listening on ${server.address().port}`));
