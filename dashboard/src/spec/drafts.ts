// What was typed and is not deployed yet, kept in this browser for each environment.

const key = (instance: string, env: string) => `j17.draft ${instance} ${env}`;

/** The draft of an environment, null where there is none. */
export function draft(instance: string, env: string): string | null {
  try {
    return localStorage.getItem(key(instance, env));
  } catch {
    return null; // storage is switched off
  }
}

/** Keeps a draft, or drops it where the text is null. It reports whether the browser keeps it. */
export function keepDraft(instance: string, env: string, text: string | null): boolean {
  try {
    if (text === null) localStorage.removeItem(key(instance, env));
    else localStorage.setItem(key(instance, env), text);
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
