// Writes the types of the control API's answers, src/api/schema.ts, from its OpenAPI document: j17 openapi | node types.mjs > src/api/schema.ts

import { readFileSync } from 'node:fs';

const { components } = JSON.parse(readFileSync(0, 'utf8'));
const ref = (s) => s.$ref.replace('#/components/schemas/', '');

/** The type of a schema. */
function type(s) {
  if (s === true || s === undefined) return 'Json';
  if (s.$ref) return ref(s);
  if (s.const !== undefined) return JSON.stringify(s.const);
  if (s.enum) return s.enum.map((v) => JSON.stringify(v)).join(' | ');
  for (const [key, by] of [['oneOf', ' | '], ['anyOf', ' | '], ['allOf', ' & ']]) if (s[key]) return [...new Set(s[key].map((x) => wrap(type(x))))].join(by);
  const types = [s.type ?? (s.properties ? 'object' : 'any')].flat();
  return types.map((t) => one(s, t)).join(' | ');
}

function wrap(t) {
  return / [|&] /.test(t) ? `(${t})` : t;
}

function one(s, t) {
  switch (t) {
    case 'string':
    case 'boolean':
    case 'null':
      return t;
    case 'integer':
    case 'number':
      return 'number';
    case 'array':
      return `${wrap(type(s.items))}[]`;
    case 'object': {
      const all = Object.entries(s.properties ?? {});
      if (all.length === 0) return s.additionalProperties && s.additionalProperties !== true ? `{ [key: string]: ${type(s.additionalProperties)} }` : 'JsonObject';
      return `{ ${all.map(([k, v]) => `${/^\w+$/.test(k) ? k : JSON.stringify(k)}${s.required?.includes(k) ? '' : '?'}: ${type(v)}`).join('; ')} }`;
    }
    default:
      return 'Json';
  }
}

const names = Object.keys(components.schemas).sort();
const lines = names.map((n) => `export type ${n} = ${type(components.schemas[n])};`);
const used = ['Json', 'JsonObject'].filter((n) => lines.some((l) => new RegExp(`: .*\\b${n}\\b`).test(l)));
process.stdout.write(`// The types of the control API's answers. Written by 'make dashboard-types' from its OpenAPI document; not to be edited.\n
import type { ${used.join(', ')} } from '../data/json';\n\n${lines.join('\n')}\n`);
