// What was typed and is not deployed yet, kept in this browser for each environment.

/** A draft, with the version that it was made of: hash '' and version 0 where none was deployed. */
export interface Draft {
  text: string;
  hash: string;
  version: number;
}

const key = (instance: string, env: string) => `j17.draft ${instance} ${env}`;

/** The draft of an environment, null where there is none. */
export function draft(instance: string, env: string): Draft | null {
  try {
    const d = JSON.parse(localStorage.getItem(key(instance, env)) ?? 'null') as Partial<Draft> | null;
    if (typeof d?.text !== 'string' || typeof d.hash !== 'string' || typeof d.version !== 'number') return null;
    return { text: d.text, hash: d.hash, version: d.version };
  } catch {
    return null; // storage is switched off, or something else wrote there
  }
}

/** Keeps a draft, or drops it where it is null. It reports whether the browser keeps it. */
export function keepDraft(instance: string, env: string, d: Draft | null): boolean {
  try {
    if (d === null) localStorage.removeItem(key(instance, env));
    else localStorage.setItem(key(instance, env), JSON.stringify(d));
    return true;
  } catch {
    return false;
  }
}

/** The smallest spec that somebody can go on from. */
export const smallest = `{
  "agent_types": ["user"],
  "aggregate_types": {
    "note": {
      "events": {
        "was_written": {
          "schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
          "handler": [{"set": {"target": "text", "value": "$.data.text"}}]
        }
      }
    }
  }
}
`;
