// Requests about specs: what is deployed, what is wrong with a text, what it would change, what is prepared.

import { ApiError, call, query, send } from '../api/client';
import type { Deployment, DryRun, PreparedSpec } from '../api/schema';
import type { Finding } from '../api/types';
import { environment } from '../app/environment.svelte';
import { parse, write, type Json, type JsonObject } from '../data/json';

/** A version of a spec with its text in the form of `j17 spec fmt`. */
export interface Deployed {
  text: string;
  deployment: Deployment;
}

export interface Checked {
  valid: boolean;
  errors: Finding[];
  warnings: Finding[];
  formatted?: string;
}

const at = (path: string) => environment.api(path);

/** All that is wrong with a text; with format, the text in the form of `j17 spec fmt` as well. */
export function check(text: string, format = false, signal?: AbortSignal): Promise<Checked> {
  return call<Checked & object>(`${at('spec/check')}${query({ format: format || null })}`, { method: 'POST', text, ...(signal ? { signal } : {}) });
}

async function version(path: string): Promise<Deployed> {
  const r = await call<{ spec: Json; deployment: Deployment } & object>(at(path));
  const text = `${write(r.spec, '  ')}\n`;
  // The same form as that of the command line, so that a draft differs where somebody has changed something.
  return { text: (await check(text, true)).formatted ?? text, deployment: r.deployment };
}

/** The deployed spec, null where there is none. */
export async function deployedSpec(): Promise<Deployed | null> {
  // That there is none is no error, and none is looked for where there is none.
  const all = await call<{ versions: Deployment[] } & object>(`${at('spec/history')}?limit=1`);
  return all.versions.length > 0 ? version('spec') : null;
}

/** A version of the spec. */
export const specVersion = (n: number) => version(`spec/versions/${n}`);

/** What a text would change, tried on so many aggregates. Findings have their places in the text. */
export async function dryRun(text: string, aggregates = 100, signal?: AbortSignal): Promise<DryRun> {
  // The text begins on a line of its own, so that columns are its own.
  const r = await call<DryRun & object>(`instances/${environment.instance?.id}/spec${query({ environment: environment.env, dry_run: true, aggregates })}`, {
    method: 'POST',
    text: `{"force":true,"spec":\n${text}}`,
    ...(signal ? { signal } : {}),
  });
  for (const f of r.replay.faults ?? []) if (f.line > 0) f.line--;
  return r;
}

/** Whether indexes have to be built before a spec can answer for its projections and unique values. One without rows is there at once. */
export function builds(tried: Pick<DryRun, 'projections' | 'changes'>): boolean {
  return (tried.projections ?? []).some((p) => p.change !== 'removed' && p.price && p.price.rows + p.price.entries > 0) || tried.changes.some((c) => c.change !== 'removed' && (c.keys ?? []).some((k) => k === 'unique' || k === 'releases'));
}

/** What became of a deployment: a version, or what is prepared for one. */
export interface Sent {
  deployment?: Deployment;
  prepared?: PreparedSpec;
}

/** Deploys a text in place of the version with a hash, '' for none. An error has all findings in its message. */
export async function deploy(text: string, hash: string, ask: { force: boolean; note: string; prepare: boolean }): Promise<Sent> {
  const r = await send(`instances/${environment.instance?.id}/spec${query({ environment: environment.env, note: ask.note, prepare: ask.prepare || null })}`, {
    method: 'POST',
    text: ask.force ? `{"force":true,"spec":\n${text}}` : text,
    headers: { 'If-Match': `"${hash}"` },
  });
  const said = await r.text();
  let body: JsonObject = {};
  try {
    body = parse(said) as JsonObject;
  } catch {
    // an answer of a proxy
  }
  if (!r.ok) {
    const more = ((body.errors ?? []) as { message: string }[]).map((f) => f.message).join(' ');
    throw new ApiError(r.status, String(body.code ?? r.status), [String(body.detail ?? `The server answered ${r.status}.`), more].filter(Boolean).join(' '), r.headers.get('X-Request-Id') ?? '', body);
  }
  return body as unknown as Sent;
}

/**
 * The spec that is prepared for the environment, null where there is none. It is asked for only where the overview, or what needs
 * attention, names one, and by nobody who may see neither.
 */
export async function preparedSpec(): Promise<PreparedSpec | null> {
  if (!environment.has('read') || !environment.has('inspect')) return null;
  const { builds } = await call<{ builds?: { kind: string }[] } & object>(at('overview'));
  if (!(builds ?? []).some((b) => b.kind === 'spec')) {
    await environment.loadAttention();
    if (!(environment.attention ?? []).some((a) => a.kind === 'spec')) return null;
  }
  try {
    return (await call<{ prepared: PreparedSpec } & object>(at('spec/prepared'))).prepared;
  } catch (e) {
    if (e instanceof ApiError && e.status === 404) return null;
    throw e;
  }
}

/** Gives up the spec that is prepared. */
export const dropPrepared = () => call(at('spec/prepared'), { method: 'DELETE' });

/** Who has deployed a version, for a sentence. */
export const byWhom = (d: Deployment | PreparedSpec) => {
  const who = 'deployed_by' in d ? d.deployed_by : 'requested_by' in d ? d.requested_by : undefined;
  return who?.email ?? (who?.kind === 'server' ? 'the server' : (who?.kind ?? 'somebody'));
};
