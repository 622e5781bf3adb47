// The instance and the environment that are looked at: what the address names, and what their spec has.

import { call } from '../api/client';
import type { Attention, Env, Instance, Right } from '../api/types';
import { isObject, keys, type Json, type JsonObject } from '../data/json';
import type { Page } from './pages';
import { session } from './session.svelte';

export const envs: Env[] = ['prod', 'staging', 'test'];

class Environment {
  instances = $state<Instance[]>([]);
  instance = $state<Instance | null>(null);
  env = $state<Env>('prod');
  /** The deployed spec; null where there is none, undefined until it is known. */
  spec = $state.raw<JsonObject | null | undefined>(undefined);
  version = $state(0);
  /** What waits for a person, by cause; null until it is known. */
  attention = $state.raw<Attention[] | null>(null);

  async loadInstances() {
    this.instances = (await call<{ instances: Instance[] } & object>('instances?limit=1000')).instances;
    // Who signs in now may see others than who was signed in before.
    this.instance = null;
    this.spec = undefined;
    this.attention = null;
  }

  /** Makes an instance, by its name, and an environment the ones that are looked at. It reports whether there are such. */
  choose(name: string, env: string): boolean {
    const found = this.instances.find((i) => i.name === name);
    if (!found || !envs.includes(env as Env)) return false;
    if (this.instance?.id !== found.id || this.env !== env) {
      this.instance = found;
      this.env = env as Env;
      this.spec = undefined;
      this.attention = null;
      void this.loadSpec();
    }
    return true;
  }

  async loadSpec() {
    const at = this.api('');
    try {
      // That there is none is no error, and none is looked for where there is none.
      const all = await call<{ versions: unknown[] } & object>(`${at}spec/history?limit=1`);
      if (all.versions.length === 0) {
        if (at === this.api('')) this.spec = null;
        return;
      }
      const r = await call<{ spec: JsonObject; deployment: { version: number } } & object>(`${at}spec`);
      if (at !== this.api('')) return;
      this.spec = r.spec;
      this.version = r.deployment.version;
    } catch {
      // It stays unknown, which is not the same as none, and is asked for again.
      if (at !== this.api('') || this.spec !== undefined) return;
      setTimeout(() => {
        if (at === this.api('') && this.spec === undefined && session.operator) void this.loadSpec();
      }, 5000);
    }
  }

  /** Asks what waits for a person. */
  async loadAttention() {
    const at = this.api('attention');
    const r = await call<{ attention: Attention[] } & object>(at);
    if (at === this.api('attention')) this.attention = r.attention;
  }

  /** A path of the environment's administration, below the API's. */
  api(path: string): string {
    return `instances/${this.instance?.id ?? ''}/ops/${this.env}/${path}`;
  }

  /** The path of a page of this environment, below the dashboard's. */
  page(path: string): string {
    return `i/${this.instance?.name ?? ''}/${this.env}/${path}`;
  }

  has(right: Right): boolean {
    return session.has(right, this.instance?.id ?? '');
  }

  /**
   * Whether the navigation has a page: the role may see it, and the spec or its history have something to show there. What happened and what
   * waits is shown from the first spec on: events of types that are in none any more are still there.
   */
  offers(page: Page): boolean {
    if (!page.group || !this.has(page.right)) return false;
    return !page.ofSpec || this.spec !== null || (page.name === 'attention' && (this.attention?.length ?? 0) > 0);
  }

  /** The aggregate types of the spec, in its order. */
  get types(): string[] {
    return isObject(this.spec?.aggregate_types) ? keys(this.spec.aggregate_types) : [];
  }

  /** The event types of an aggregate type, or of all. */
  events(type?: string): string[] {
    const all = new Set<string>();
    for (const t of type ? [type] : this.types) {
      const of: Json | undefined = isObject(this.spec?.aggregate_types) ? this.spec.aggregate_types[t] : undefined;
      if (isObject(of) && isObject(of.events)) for (const e of keys(of.events)) all.add(e);
    }
    return [...all];
  }

  /** Which of the six colours an aggregate type has. */
  colour(type: string): string {
    const i = this.types.indexOf(type);
    let n = i;
    if (i < 0) {
      n = 0;
      for (const c of type) n = (n * 31 + c.charCodeAt(0)) % 6;
    }
    return `k${(n % 6) + 1}`;
  }

  /** The host of the environment, for commands. */
  get url(): string {
    const host = this.instance?.environments.find((e) => e.name === this.env)?.host ?? '';
    if (!host) return '$J17_URL';
    const port = location.port && !host.includes(':') ? `:${location.port}` : '';
    return `${location.protocol}//${host}${port}`;
  }
}

export const environment = new Environment();
