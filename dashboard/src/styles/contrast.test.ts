import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

// Contrasts of the tokens, as WCAG 2.2 counts them: text has at least 4.5:1 on whatever it may stand on, marks and the borders of controls 3:1.

const css = readFileSync(new URL('tokens.css', import.meta.url), 'utf8');

function tokens(selector: string): Record<string, string> {
  const from = css.indexOf(`${selector} {`);
  const block = css.slice(from, css.indexOf('\n}', from));
  return Object.fromEntries([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map((m) => [m[1], m[2]]));
}

function luminance(colour: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((i) => {
    const c = parseInt(colour.slice(i, i + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

const surfaces = ['page', 'surface', 'sunken', 'raised', 'hover', 'selected'];
const statuses = ['ok', 'wait', 'warn', 'bad', 'erased', 'added', 'removed', 'changed'];

/** What stands on what: each text or mark of a row on each surface of it, with the least contrast. */
const rows: [string[], string[], number][] = [
  [['ink', 'ink-2', 'ink-3', 'accent', 'past'], [...surfaces, 'past-soft'], 4.5],
  [['accent'], ['accent-soft'], 4.5],
  [statuses, surfaces, 4.5],
  ...statuses.map((s): [string[], string[], number] => [[s, 'ink', 'ink-2'], [`${s}-soft`], 4.5]),
  [['on-accent'], ['accent', 'accent-hover'], 4.5],
  [['on-env'], ['env-prod', 'env-staging', 'env-test'], 4.5],
  [
    ['json-key', 'json-text', 'json-number', 'json-word', 'json-mark'],
    ['surface', 'sunken', 'past-soft', 'added-soft', 'removed-soft', 'changed-soft'],
    4.5,
  ],
  [['edge', 'past-mark', ...[1, 2, 3, 4, 5, 6].map((i) => `kind-${i}`)], [...surfaces, 'past-soft'], 3],
];

test.each([
  ['light', tokens(':root')],
  ['dark', { ...tokens(':root'), ...tokens('[data-theme="dark"]') }],
])('text and marks can be told from what they stand on in the %s theme', (_, of) => {
  const low: string[] = [];
  for (const [texts, on, least] of rows) {
    for (const text of texts) {
      for (const under of on) {
        const [a, b] = [of[text], of[under]];
        if (!a || !b) low.push(`--${a ? under : text} is not there`);
        else if (contrast(a, b) < least) low.push(`--${text} on --${under}: ${contrast(a, b).toFixed(2)} of ${least}`);
      }
    }
  }
  expect(low).toEqual([]);
});
