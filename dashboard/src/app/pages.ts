// All pages: their addresses, the rights they ask for, and where the navigation has them.

import type { Component } from 'svelte';
import type { Right } from '../api/types';

export interface Page {
  name: string;
  /** The path below the environment's. Names in braces stand for one segment, the last one in "**" for the rest. */
  path: string;
  title: string;
  right: Right;
  load: () => Promise<{ default: Component<Record<string, string>> }>;
  /** Where the navigation has it. */
  group?: 'Look' | 'Work' | 'Change' | 'Settings';
  icon?: string;
  /** The second key of its shortcut, behind g. */
  key?: string;
  /** Whether there is nothing on it in an environment that never had a spec. */
  ofSpec?: boolean;
}

// The cast is of components whose properties are the names in their paths.
const page = (load: () => Promise<unknown>) => load as Page['load'];

export const pages: Page[] = [
  { name: 'overview', path: 'overview', title: 'Overview', right: 'read', group: 'Look', icon: 'home', key: 'o', load: page(() => import('../pages/Overview.svelte')) },
  { name: 'events', path: 'events', title: 'Events', right: 'read', group: 'Look', icon: 'list', key: 'e', ofSpec: true, load: page(() => import('../pages/Events.svelte')) },
  { name: 'event', path: 'events/{position}', title: 'Event', right: 'read', load: page(() => import('../pages/Event.svelte')) },
  { name: 'aggregates', path: 'aggregates', title: 'Aggregates', right: 'read', group: 'Look', icon: 'box', key: 'a', ofSpec: true, load: page(() => import('../pages/Aggregates.svelte')) },
  { name: 'type', path: 'aggregates/{type}', title: 'Aggregates', right: 'read', load: page(() => import('../pages/AggregateType.svelte')) },
  { name: 'aggregate', path: 'aggregates/{type}/{id}', title: 'Aggregate', right: 'read', load: page(() => import('../pages/Aggregate.svelte')) },
  { name: 'attention', path: 'attention', title: 'Needs attention', right: 'inspect', group: 'Work', icon: 'warn', key: 'n', ofSpec: true, load: page(() => import('../pages/Attention.svelte')) },
  { name: 'spec', path: 'spec', title: 'Spec', right: 'view', group: 'Change', icon: 'code', key: 's', load: page(() => import('../pages/Spec.svelte')) },
  { name: 'history', path: 'spec/history', title: 'Spec history', right: 'view', load: page(() => import('../pages/SpecHistory.svelte')) },
  { name: 'states', path: 'spec/states', title: 'Both states', right: 'read', load: page(() => import('../pages/SpecStates.svelte')) },
  { name: 'keys', path: 'keys', title: 'API keys', right: 'audit', group: 'Settings', icon: 'key', key: 'k', load: page(() => import('../pages/Keys.svelte')) },
  { name: 'usage', path: 'usage', title: 'Usage', right: 'view', group: 'Settings', icon: 'chart', key: 'u', load: page(() => import('../pages/Usage.svelte')) },
];

export const groups = ['Look', 'Work', 'Change', 'Settings'] as const;

/** The page at a path below an environment's, with what the names in its path stand for. */
export function pageAt(path: string): { page: Page; names: Record<string, string> } | null {
  const parts = path.split('/');
  for (const page of pages) {
    const pattern = page.path.split('/');
    if (pattern.length !== parts.length) continue;
    const names: Record<string, string> = {};
    const fits = pattern.every((p, i) => {
      const part = parts[i] as string;
      if (!p.startsWith('{')) return p === part;
      names[p.slice(1, -1)] = part;
      return part !== '';
    });
    if (fits) return { page, names };
  }
  return null;
}
