// Requests to the control API. They carry the session's cookie and nothing else that lets somebody in.

import { api } from '../app/base';
import { isObject, parse, type Json } from '../data/json';

/** An answer that is none: what the server said, or that it could not be reached. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly requestID: string,
    /** The whole body, where the server has sent one. */
    readonly body: Json,
  ) {
    super(message);
  }
}

/** What is to be done when a session has ended. It resolves to true once there is another one. */
let renew: () => Promise<boolean> = () => Promise.resolve(false);

export function onExpired(f: () => Promise<boolean>) {
  renew = f;
}

export interface Ask {
  method?: string;
  body?: unknown;
  /** A body that is a text already, with its type. */
  text?: string;
  type?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Whether an ended session is an answer like others, and nobody is asked for a password. */
  quiet?: boolean;
}

/** Sends a request to a path below the API's and returns the response, whatever its status is. */
export async function send(path: string, ask: Ask = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: 'application/json', ...ask.headers };
  const body = ask.text ?? (ask.body === undefined ? undefined : JSON.stringify(ask.body));
  if (body !== undefined) headers['Content-Type'] = ask.type ?? 'application/json';
  for (;;) {
    let r: Response;
    try {
      r = await fetch(api + path, { method: ask.method ?? 'GET', headers, body, signal: ask.signal ?? null, credentials: 'same-origin', redirect: 'error' });
    } catch (e) {
      if (ask.signal?.aborted) throw e;
      throw new ApiError(0, 'unreachable', 'The server cannot be reached. What you typed is still here; try again.', '', null);
    }
    if (r.status !== 401 || ask.quiet || !(await renew())) return r;
  }
}

/** Sends a request and returns the body of the answer. Errors are ApiErrors. */
export async function call<T = Json>(path: string, ask: Ask = {}): Promise<T> {
  const r = await send(path, ask);
  const text = await r.text();
  let body: Json = null;
  try {
    body = text === '' ? null : parse(text);
  } catch {
    body = null; // an answer of a proxy
  }
  if (r.ok) return body as T;
  const o = isObject(body) ? body : {};
  const inner = isObject(o.error) ? o.error : o;
  const said = typeof inner.detail === 'string' ? inner.detail : typeof inner.message === 'string' ? inner.message : typeof o.error === 'string' ? o.error : `The server answered ${r.status}.`;
  throw new ApiError(r.status, String(inner.code ?? o.code ?? r.status), said, r.headers.get('X-Request-Id') ?? String(inner.error_id ?? o.error_id ?? ''), body);
}

export const post = <T = Json>(path: string, body: unknown, ask: Ask = {}) => call<T>(path, { method: 'POST', body, ...ask });

/** A part of a path. */
export const part = encodeURIComponent;

/** A query with what is not empty, '' where nothing is. */
export function query(of: Record<string, string | number | boolean | null | undefined>): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(of)) if (v !== null && v !== undefined && v !== '') q.set(k, String(v));
  const text = q.toString();
  return text ? `?${text}` : '';
}
