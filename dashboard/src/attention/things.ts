// The single things that wait for a person: where each is, what can be done with it, and what is said of it first.

import type { Attention, Right } from '../api/types';
import { isObject, visible, type Json } from '../data/json';

const part = encodeURIComponent;

/** A step that a button takes for one thing. */
export interface Step {
  name: 'retry' | 'resume' | 'execute' | 'delete';
  /** What the button says. */
  verb: string;
  /** What is said once it is done. */
  done: string;
  /** What is asked before, '' where nothing is. */
  ask: string;
  method: 'POST' | 'DELETE';
  /** The path below the environment's. */
  path: string;
}

const folders: Record<string, string> = { scheduled: 'scheduled', saga: 'sagas', delivery: 'deliveries', listener: 'listeners', backup: 'backups', erasure: 'tombstones' };

/** The steps that may be taken for one thing of a cause, by the actions that the server names and the rights of who looks. */
export function steps(a: Pick<Attention, 'kind' | 'actions'>, thing: string, has: (right: Right) => boolean): Step[] {
  const folder = folders[a.kind];
  const of = folder ? `${folder}/${part(thing)}` : '';
  const out: Step[] = [];
  for (const action of a.actions) {
    if (action === 'retry' && of && has('operate')) out.push({ name: 'retry', verb: 'Retry', done: 'Tried again', ask: '', method: 'POST', path: `${of}/retry` });
    if (action === 'resume' && of && has('operate')) out.push({ name: 'resume', verb: 'Resume', done: 'Resumed', ask: '', method: 'POST', path: `${of}/resume` });
    if (action === 'execute' && of && has('erase'))
      out.push({ name: 'execute', verb: 'Execute', done: 'Being erased', ask: 'The events that it names are erased, with what they led to. This cannot be undone.', method: 'POST', path: `${of}/execute` });
    if (action !== 'delete') continue;
    if (a.kind === 'spec' && has('deploy'))
      out.push({ name: 'delete', verb: 'Delete', done: 'Given up', ask: 'The prepared spec is given up. The one that is deployed stays in force.', method: 'DELETE', path: 'spec/prepared' });
    else if (a.kind === 'scheduled' && has('operate'))
      out.push({ name: 'delete', verb: 'Delete', done: 'Given up', ask: 'It is given up: the event is not written, and nobody is asked about it again.', method: 'DELETE', path: of });
    else if (a.kind === 'backup' && has('operate')) out.push({ name: 'delete', verb: 'Delete', done: 'Deleted', ask: 'What there is of this backup is removed.', method: 'DELETE', path: of });
  }
  return out;
}

/** The page that one thing has, '' where it is shown beside the list. Paths are below the environment's. */
export function pageOf(kind: string, thing: string): string {
  if (kind === 'spec') return 'spec';
  const cut = thing.indexOf(':');
  return kind === 'implication' && cut > 0 ? `aggregates/${part(thing.slice(0, cut))}/${part(thing.slice(cut + 1))}` : '';
}

/** The route that one thing is read by, null where the API has none. A list, where there is no route of its own. */
export function routeOf(kind: string, thing: string): string | null {
  if (kind === 'scheduled') return 'scheduled/dead_letters?limit=1000';
  if (kind === 'listener') return 'listeners?limit=1000';
  if (kind === 'place') return 'places';
  if (kind === 'projection') return `projections/${part(thing)}`;
  return ['saga', 'delivery', 'backup', 'erasure'].includes(kind) ? `${folders[kind]}/${part(thing)}` : null;
}

/** The thing within the answer of its route, null where a list has it no more. */
export function within(answer: Json, thing: string): Json {
  if (!isObject(answer)) return null;
  for (const list of ['scheduled', 'listeners', 'places']) {
    const all = answer[list];
    if (Array.isArray(all)) return all.find((x) => isObject(x) && [x.scheduled_id, x.name, x.type].includes(thing)) ?? null;
  }
  const rest = Object.keys(answer).filter((k) => k !== 'ok');
  const only = rest.length === 1 ? answer[rest[0] as string] : undefined;
  if (isObject(only)) return only;
  const out = Object.create(null) as Record<string, Json>;
  for (const k of rest) out[k] = answer[k] as Json;
  return out;
}

export interface Fact {
  name: string;
  text: string;
  /** The page that it leads to, below the environment's. */
  page?: string;
  /** Whether it is a status. */
  status?: boolean;
}

const keyPage = (key: string) => `aggregates/${key.slice(0, key.indexOf(':'))}/${part(key.slice(key.indexOf(':') + 1))}`;

/** What is said of a thing before all of its members. */
export function facts(value: Json): Fact[] {
  if (!isObject(value)) return [];
  const out: Fact[] = [];
  const text = (v: Json | undefined) => (typeof v === 'string' ? v : typeof v === 'number' ? String(v) : '');
  const add = (name: string, v: Json | undefined, more: Partial<Fact> = {}) => {
    if (text(v) !== '') out.push({ name, text: visible(text(v)), ...more });
  };
  add('Status', value.status, { status: true });
  const error = isObject(value.error) ? value.error.message : (value.last_error ?? value.error);
  add('Why', error);
  add('Tries', value.attempts);
  const of = isObject(value.trigger) ? value.trigger : isObject(value.event) ? value.event : isObject(value.implied_by) ? value.implied_by : null;
  if (of) {
    if (typeof of.key === 'string' && of.key.includes(':')) add('Caused by', of.key.replace(':', '/'), { page: keyPage(of.key) });
    if (typeof of.stream_id === 'string') add('Event', `${text(of.event_type) || text(of.type)} ${of.stream_id}`, { page: `events/${of.stream_id}` });
  }
  const emit = value.emit;
  if (isObject(emit)) add('Would write', `${text(emit.aggregate_type)}.${text(emit.event_type)}`, text(emit.id) ? { page: `aggregates/${part(text(emit.aggregate_type))}/${part(text(emit.id))}` } : {});
  if (typeof value.key === 'string' && value.key.includes(':')) add('Aggregate', value.key.replace(':', '/'), { page: keyPage(value.key) });
  return out;
}
