// Shapes of answers that pages read. The documents of OpenAPI have all of them with every member; these are the members that pages use.

import type { Digits, Json, JsonObject } from '../data/json';

export type Right = 'view' | 'read' | 'inspect' | 'operate' | 'deploy' | 'audit' | 'erase' | 'manage';
export type Env = 'prod' | 'staging' | 'test';

export interface Operator {
  id: string;
  email: string;
  role: string;
  instances: string[];
  rights: { server: Right[]; instances: Record<string, Right[]> };
}

export interface Session {
  operator: Operator | null;
  expires_at?: string;
}

export interface Instance {
  id: string;
  name: string;
  plan: string;
  environments: { name: Env; host: string }[];
  limits?: { events_per_month?: number; storage_bytes?: number; requests_per_minute?: number };
  usage?: { events: number; storage_bytes: number } | null;
}

export interface StoredEvent extends JsonObject {
  stream_id: string;
  key: string;
  type: string;
  data: Json;
  metadata: JsonObject;
}

export interface Change {
  pointer: string;
  change: 'added' | 'removed' | 'changed';
  before?: string;
  after?: string;
  operation?: string;
}

export interface VersionChanges {
  length: number;
  event: StoredEvent;
  changes: Change[];
  more?: number;
}

export interface TraceNode {
  id: string;
  kind: 'event' | 'scheduled' | 'saga' | 'refusal' | 'delivery';
  at: string;
  at_ms: number;
  key?: string;
  type?: string;
  status?: string;
  error?: string;
  steps?: { name: string; status: string }[];
}

export interface Trace {
  nodes: TraceNode[];
  edges: { from: string; to: string; how: string }[];
  truncated: boolean;
}

export interface Attention {
  kind: string;
  cause: string;
  title: string;
  count: number;
  /** Whether there are more than were counted. */
  more?: boolean;
  since: string | null;
  newest: string | null;
  sample: string[];
  actions: string[];
}

export interface Finding {
  pointer: string;
  message: string;
  hint?: string;
  line?: number;
  column?: number;
}

export type Amount = number | Digits;
