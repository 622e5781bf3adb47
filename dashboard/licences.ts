// The licences of what is bundled, as a file beside it.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Plugin } from 'vite';

const allowed = ['MIT', 'ISC', '0BSD', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause'];

/** The folder of the package that a module is of, null where it is one of ours. */
function packageOf(module: string): string | null {
  const path = module.replace(/^\0/, '').replace(/\?.*$/, '');
  if (!path.includes('/node_modules/')) return null;
  for (let d = dirname(path); d.includes('/node_modules/'); d = dirname(d)) {
    const file = join(d, 'package.json');
    if (existsSync(file) && (JSON.parse(readFileSync(file, 'utf8')) as { name?: string }).name) return d;
  }
  return null;
}

/** Writes licences.txt. The build fails where a package has no licence that is known to be fine. */
export function licences(): Plugin {
  return {
    name: 'licences',
    apply: 'build',
    generateBundle(_, bundle) {
      const folders = new Set<string>();
      for (const file of Object.values(bundle)) {
        if (file.type !== 'chunk') continue;
        for (const m of file.moduleIds) {
          const folder = packageOf(m);
          if (folder) folders.add(folder);
        }
      }
      const texts = new Map<string, string>();
      for (const folder of folders) {
        const p = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { name: string; version: string; license?: string };
        const file = readdirSync(folder).sort().find((f) => /^licen[cs]e/i.test(f));
        if (!p.license || !allowed.includes(p.license)) this.error(`${p.name} has the licence ${p.license ?? 'of nobody'}, which is not among ${allowed.join(', ')}.`);
        const text = file ? readFileSync(join(folder, file), 'utf8').trim() : `Licensed under ${p.license}.`;
        texts.set(`${p.name} ${p.version} (${p.license})`, text);
      }
      texts.set('IBM Plex (OFL-1.1)', readFileSync(join(import.meta.dirname, 'src/styles/fonts/LICENSE.txt'), 'utf8').trim());
      const all = [...texts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, text]) => `${name}\n${'='.repeat(name.length)}\n\n${text}\n`);
      this.emitFile({ type: 'asset', fileName: 'licences.txt', source: `The dashboard of j17 contains software and fonts of others, under these licences.\n\n${all.join('\n\n')}` });
    },
  };
}
