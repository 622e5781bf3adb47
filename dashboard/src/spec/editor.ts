// The editor of specs: CodeMirror with the colours of the dashboard. It is loaded with the page that needs it.

import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { json } from '@codemirror/lang-json';
import { bracketMatching, HighlightStyle, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { setDiagnostics, type Diagnostic } from '@codemirror/lint';
import { search, searchKeymap } from '@codemirror/search';
import { EditorState, RangeSetBuilder, StateEffect, StateField, type Extension, type Text } from '@codemirror/state';
import { Decoration, EditorView, highlightActiveLine, keymap, lineNumbers, type DecorationSet } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { nonce } from '../app/base';
import type { Finding } from '../api/types';

const colours = HighlightStyle.define([
  { tag: tags.propertyName, color: 'var(--json-key)' },
  { tag: tags.string, color: 'var(--json-text)' },
  { tag: tags.number, color: 'var(--json-number)' },
  { tag: [tags.bool, tags.null], color: 'var(--json-word)' },
  { tag: [tags.brace, tags.squareBracket, tags.separator], color: 'var(--json-mark)' },
]);

const looks = EditorView.theme({
  '&': { backgroundColor: 'var(--surface)', color: 'var(--ink)', height: '100%', fontSize: '12.5px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '20px', overflow: 'auto' },
  '.cm-content': { caretColor: 'var(--ink)' },
  '.cm-gutters': { backgroundColor: 'var(--surface)', color: 'var(--ink-3)', border: '0' },
  '.cm-activeLine': { backgroundColor: 'var(--sunken)' },
  '.cm-changed': { backgroundColor: 'var(--added-soft)' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '.cm-selectionBackground, &.cm-focused .cm-selectionBackground': { backgroundColor: 'var(--selected) !important' },
  '.cm-panels': { backgroundColor: 'var(--raised)', color: 'var(--ink)' },
  '.cm-tooltip': { backgroundColor: 'var(--raised)', color: 'var(--ink)', border: '1px solid var(--line)' },
});

// --- Lines that differ from the deployed text

const setBase = StateEffect.define<string>();

/** Marks the lines that the deployed text has not, wherever it has them. */
function mark(doc: Text, base: string): DecorationSet {
  const known = new Map<string, number>();
  for (const line of base.split('\n')) known.set(line, (known.get(line) ?? 0) + 1);
  const b = new RangeSetBuilder<Decoration>();
  for (let n = 1; n <= doc.lines; n++) {
    const line = doc.line(n);
    const left = known.get(line.text) ?? 0;
    if (left > 0) known.set(line.text, left - 1);
    else if (base !== '') b.add(line.from, line.from, Decoration.line({ class: 'cm-changed' }));
  }
  return b.finish();
}

const changed = StateField.define<{ base: string; marks: DecorationSet }>({
  create: () => ({ base: '', marks: Decoration.none }),
  update(v, tr) {
    let base = v.base;
    for (const e of tr.effects) if (e.is(setBase)) base = e.value;
    return base !== v.base || tr.docChanged ? { base, marks: mark(tr.state.doc, base) } : v;
  },
  provide: (f) => EditorView.decorations.from(f, (v) => v.marks),
});

export interface Editor {
  text(): string;
  replace(text: string): void;
  base(text: string): void;
  show(findings: Finding[], warnings: Finding[]): void;
  jump(line: number, column: number): void;
  destroy(): void;
}

/** Puts an editor into an element. Every change of the text is told. */
export function edit(parent: HTMLElement, text: string, readOnly: boolean, typed: (text: string) => void): Editor {
  const extensions: Extension[] = [
    lineNumbers(), history(), bracketMatching(), highlightActiveLine(), search({ top: true }), json(), indentUnit.of('  '), changed,
    syntaxHighlighting(colours), looks, EditorState.readOnly.of(readOnly), EditorView.contentAttributes.of({ 'aria-label': 'Spec', spellcheck: 'false' }),
    keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
    EditorView.updateListener.of((u) => {
      if (u.docChanged) typed(u.state.doc.toString());
    }),
  ];
  if (nonce) extensions.push(EditorView.cspNonce.of(nonce));
  const view = new EditorView({ parent, state: EditorState.create({ doc: text, extensions }) });
  view.scrollDOM.tabIndex = 0; // so that it scrolls by the keyboard where nothing may be typed

  function offset(line: number, column: number): number {
    const l = view.state.doc.line(Math.max(1, Math.min(line, view.state.doc.lines)));
    return Math.min(l.to, l.from + Math.max(0, column - 1));
  }

  return {
    text: () => view.state.doc.toString(),
    replace(t) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: t } });
    },
    base(t) {
      view.dispatch({ effects: setBase.of(t) });
    },
    show(errors, warnings) {
      const all: Diagnostic[] = [];
      for (const [findings, severity] of [[errors, 'error'], [warnings, 'warning']] as const) {
        for (const f of findings) {
          const from = offset(f.line ?? 1, f.column ?? 1);
          all.push({ from, to: Math.min(view.state.doc.length, Math.max(from + 1, view.state.doc.lineAt(from).to)), severity, message: f.message });
        }
      }
      view.dispatch(setDiagnostics(view.state, all));
    },
    jump(line, column) {
      const at = offset(line, column);
      view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: 'center' }) });
      view.focus();
    },
    destroy: () => view.destroy(),
  };
}
