// What waits for a person, in words.

import type { Attention } from '../api/types';
import { plural } from '../data/format';

const nouns: Record<string, string> = {
  scheduled: 'scheduled event',
  saga: 'saga',
  delivery: 'delivery',
  implication: 'implication',
  listener: 'listener',
  projection: 'projection',
  place: 'place',
  spec: 'spec',
  backup: 'backup',
  erasure: 'erasure',
};

/** The title of a kind, as the server gives it, and the noun for one thing of it. */
export const titles: Record<string, string> = {
  scheduled: 'Scheduled events',
  saga: 'Sagas',
  delivery: 'Deliveries',
  implication: 'Implications',
  listener: 'Listeners',
  projection: 'Projections',
  place: 'Places',
  spec: 'Spec',
  backup: 'Backups',
  erasure: 'Erasures',
};

/** How many of what: 2 scheduled events. */
export function amount(a: Pick<Attention, 'kind' | 'count' | 'more'>): string {
  const text = plural(a.count, nouns[a.kind] ?? a.kind);
  return a.more ? `over ${text}` : text;
}

/** The word of a cause's status, and how it is coloured. */
export function state(a: Pick<Attention, 'kind' | 'cause'>): { kind: string; icon: string; text: string } {
  const said = /\b(disabled|paused|behind|invalid|damaged?|late|overdue|older|due|rejected)\b/.exec(a.cause)?.[1] ?? '';
  switch (a.kind) {
    case 'implication':
      return { kind: 'bad', icon: 'cross', text: 'rejected' };
    case 'backup':
      return said === 'older' || said === 'late' || said === 'overdue' ? { kind: 'warn', icon: 'clock', text: 'late' } : { kind: 'bad', icon: 'cross', text: 'failed' };
    case 'erasure':
      return said === 'due' ? { kind: 'warn', icon: 'clock', text: 'due' } : { kind: 'bad', icon: 'cross', text: 'failed' };
    case 'listener':
      if (said === 'paused') return { kind: 'plain', icon: 'pause', text: 'paused' };
      return said === 'behind' ? { kind: 'warn', icon: 'warn', text: 'behind' } : { kind: 'bad', icon: 'cross', text: said || 'disabled' };
    case 'projection':
    case 'place':
      return said === 'invalid' ? { kind: 'warn', icon: 'warn', text: 'invalid' } : { kind: 'bad', icon: 'cross', text: said.startsWith('damage') ? 'damaged' : 'failed' };
    default:
      return { kind: 'bad', icon: 'cross', text: 'failed' };
  }
}
