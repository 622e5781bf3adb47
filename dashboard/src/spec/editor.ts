// The editor of specs: CodeMirror with the colours of the dashboard. It is loaded with the page that needs it.

import { autocompletion, completionKeymap, startCompletion, type Completion, type CompletionContext, type CompletionResult } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { json } from '@codemirror/lang-json';
import { bracketMatching, HighlightStyle, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { setDiagnostics, type Diagnostic } from '@codemirror/lint';
import { search, searchKeymap } from '@codemirror/search';
import { EditorState, RangeSetBuilder, type RangeSet, StateEffect, StateField, type Extension, type Text } from '@codemirror/state';
import { Decoration, EditorView, gutter, GutterMarker, highlightActiveLine, hoverTooltip, keymap, lineNumbers, type DecorationSet } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { nonce } from '../app/base';
import type { Finding } from '../api/types';
import { parse, visible, type Json } from '../data/json';
import { explain, proposals } from './language';
import { hunks, marks } from './lines';
import { nearest, placeAt, wordAt } from './places';
import { overSelections } from './typing';

const colours = HighlightStyle.define([
  { tag: tags.propertyName, color: 'var(--json-key)' },
  { tag: tags.string, color: 'var(--json-text)' },
  { tag: tags.number, color: 'var(--json-number)' },
  { tag: [tags.bool, tags.null], color: 'var(--json-word)' },
  { tag: [tags.brace, tags.squareBracket, tags.separator], color: 'var(--json-mark)' },
]);

const looks = EditorView.theme({
  '&': { backgroundColor: 'var(--surface)', color: 'var(--ink)', height: '100%', fontSize: '12.5px' },
  '&.cm-focused': { outline: 'none' }, // the region around it has one
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '20px', overflow: 'auto' },
  '.cm-content': { caretColor: 'var(--ink)' },
  '.cm-gutters': { backgroundColor: 'var(--surface)', color: 'var(--ink-3)', border: '0' },
  '.cm-activeLine': { backgroundColor: 'var(--sunken)' },
  '.cm-changed': { backgroundColor: 'var(--added-soft)' },
  '.cm-signs': { width: '14px', textAlign: 'center', fontWeight: '600', cursor: 'default' },
  '.cm-added': { color: 'var(--added)', backgroundColor: 'var(--added-soft)' },
  '.cm-gone': { color: 'var(--removed)' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '.cm-selectionBackground, &.cm-focused .cm-selectionBackground': { backgroundColor: 'var(--selected) !important' },
  '.cm-panels': { backgroundColor: 'var(--raised)', color: 'var(--ink)' },
  '.cm-tooltip': { backgroundColor: 'var(--raised)', color: 'var(--ink)', border: '1px solid var(--line)', borderRadius: 'var(--r1)', boxShadow: 'var(--shadow-2)', maxWidth: 'min(440px, 90vw)' },
  '.cm-tooltip.cm-tooltip-autocomplete > ul': { fontFamily: 'var(--mono)', maxHeight: '240px' },
  '.cm-tooltip.cm-tooltip-autocomplete > ul > li': { padding: '2px 8px', lineHeight: '20px', display: 'flex', gap: '12px' },
  '.cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]': { backgroundColor: 'var(--selected)', color: 'var(--ink)' },
  '.cm-completionMatchedText': { textDecoration: 'none', fontWeight: '600', color: 'var(--accent)' },
  '.cm-completionDetail': { marginLeft: 'auto', fontStyle: 'normal', fontFamily: 'var(--sans)', fontSize: '12px', color: 'var(--ink-3)' },
  '.cm-completionInfo': { fontFamily: 'var(--sans)', fontSize: '12px', lineHeight: '16px', padding: '8px 10px' },
  '.cm-tooltip-lint': { fontFamily: 'var(--sans)', fontSize: '13px' },
  '.cm-about': { fontFamily: 'var(--sans)', fontSize: '13px', lineHeight: '20px', padding: '8px 10px', overflowWrap: 'anywhere' },
  '.cm-about b': { fontFamily: 'var(--mono)', fontWeight: '500' },
  '.cm-about span': { marginLeft: '10px', fontSize: '12px', color: 'var(--ink-3)' },
  '.cm-about p': { margin: '2px 0 0' },
});

// --- Lines that differ from the deployed text

const setBase = StateEffect.define<string[] | null>();

class Sign extends GutterMarker {
  constructor(
    readonly sign: string,
    readonly about: string,
    override readonly elementClass: string,
  ) {
    super();
  }
  override toDOM() {
    const e = document.createElement('span');
    e.textContent = this.sign;
    e.title = this.about;
    return e;
  }
}
const added = new Sign('+', 'This line is not deployed.', 'cm-added');
const gone = new Sign('−', 'Before this line, lines of the deployed spec are gone.', 'cm-gone');

interface Changed {
  base: string[] | null;
  lines: DecorationSet;
  signs: RangeSet<GutterMarker>;
  count: number;
}

/** Marks the lines that the deployed text has not, and those before which it has others. */
function mark(doc: Text, base: string[] | null): Changed {
  const lines = new RangeSetBuilder<Decoration>();
  const signs = new RangeSetBuilder<GutterMarker>();
  const found = base === null ? { added: [], gone: [], count: 0 } : marks(base, doc.toString().split('\n'));
  for (const n of found.added) {
    const { from } = doc.line(n + 1);
    lines.add(from, from, Decoration.line({ class: 'cm-changed' }));
  }
  const all = [...found.added.map((n) => [n, added] as const), ...found.gone.map((n) => [n, gone] as const)].sort((a, b) => a[0] - b[0]);
  for (const [n, sign] of all) {
    const { from } = doc.line(n + 1);
    signs.add(from, from, sign);
  }
  return { base, lines: lines.finish(), signs: signs.finish(), count: found.count };
}

const changed = StateField.define<Changed>({
  create: (s) => mark(s.doc, null),
  update(v, tr) {
    let base = v.base;
    for (const e of tr.effects) if (e.is(setBase)) base = e.value;
    return base !== v.base || tr.docChanged ? mark(tr.state.doc, base) : v;
  },
  provide: (f) => [
    EditorView.decorations.from(f, (v) => v.lines),
    gutter({ class: 'cm-signs', markers: (view) => view.state.field(f).signs, initialSpacer: () => added }),
  ],
});

// --- Completion and hover

/** What the text last said, when it was JSON. */
class Said {
  private text = '';
  private spec: Json = null;

  of(text: string): Json {
    if (text !== this.text) {
      this.text = text;
      try {
        this.spec = parse(text);
      } catch {
        // What is being typed is no JSON yet: what it said before is near enough.
      }
    }
    return this.spec;
  }
}

function completed(said: Said): (context: CompletionContext) => CompletionResult | null {
  return (context) => {
    const text = context.state.doc.toString();
    const place = placeAt(text, context.pos);
    // Without a quotation mark there is something to propose only where somebody asks for it.
    if (!place.string && !context.explicit && !/["{[,:]/.test(text[context.pos - 1] ?? '')) return null;
    const all = proposals(text, context.pos, place, said.of(text));
    if (all.length === 0) return null;
    const from = place.string ? place.string.from + 1 : context.pos;
    const options = all.map((p): Completion => ({
      label: p.label,
      ...(p.label === '' ? { displayLabel: '""' } : {}),
      ...(p.detail ? { detail: p.detail } : {}),
      ...(p.info ? { info: p.info } : {}),
      type: p.kind,
      apply(view, _completion, _from, to) {
        // A text without an end seems to go on to the end of the line: what stands there is not part of it.
        const [a, b] = place.string ? [place.string.from, place.string.closed ? Math.max(to, place.string.to + to - context.pos) : to] : [context.pos, to];
        const cursor = p.insert.indexOf('|');
        const insert = cursor < 0 ? p.insert : p.insert.slice(0, cursor) + p.insert.slice(cursor + 1);
        view.dispatch({ changes: { from: a, to: b, insert }, selection: { anchor: a + (cursor < 0 ? insert.length : cursor) }, userEvent: 'input.complete', scrollIntoView: true });
        if (cursor >= 0) startCompletion(view);
      },
    }));
    return { from, options, validFor: /^[^"\n]*$/ };
  };
}

function explained(said: Said): Extension {
  return hoverTooltip((view, pos) => {
    const text = view.state.doc.toString();
    const word = wordAt(text, pos);
    const found = word && explain(word, text, word.from, said.of(text));
    if (!word || !found) return null;
    return {
      pos: word.from,
      end: word.to,
      above: true,
      create() {
        const dom = document.createElement('div');
        dom.className = 'cm-about';
        dom.role = 'tooltip';
        const name = dom.appendChild(document.createElement('b'));
        name.textContent = visible(found.name);
        const is = dom.appendChild(document.createElement('span'));
        is.textContent = found.is;
        dom.appendChild(document.createElement('p')).textContent = visible(found.about);
        return { dom };
      },
    };
  });
}

export interface Editor {
  text(): string;
  replace(text: string): void;
  /** Sets the deployed text, null where there is none. */
  base(text: string | null): void;
  /** How many lines differ from it. */
  changed(): number;
  show(findings: Finding[], warnings: Finding[]): void;
  jump(line: number, column: number): void;
  /** Moves the cursor to where a JSON pointer leads. */
  point(pointer: string): void;
  destroy(): void;
}

/** Puts an editor into an element. Every change of the text is told, and every place to which the cursor moves. */
export function edit(parent: HTMLElement, text: string, readOnly: boolean, typed: (text: string) => void, moved: (text: string, offset: number) => void): Editor {
  const said = new Said();
  said.of(text);
  let rests = 0;
  const extensions: Extension[] = [
    autocompletion({ override: [completed(said)], icons: false, maxRenderedOptions: 60 }), explained(said),
    changed, lineNumbers(), history(), bracketMatching(), highlightActiveLine(), overSelections, search({ top: true }), json(), indentUnit.of('  '),
    syntaxHighlighting(colours), looks, EditorState.readOnly.of(readOnly), EditorView.contentAttributes.of({ 'aria-label': 'Spec', spellcheck: 'false' }),
    keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
    EditorView.updateListener.of((u) => {
      const now = u.docChanged || u.selectionSet ? u.state.doc.toString() : '';
      if (u.docChanged) {
        typed(now);
        clearTimeout(rests);
        rests = window.setTimeout(() => said.of(now), 300);
      }
      if (u.docChanged || u.selectionSet) moved(now, u.state.selection.main.head);
    }),
  ];
  if (nonce) extensions.push(EditorView.cspNonce.of(nonce));
  const view = new EditorView({ parent, state: EditorState.create({ doc: text, extensions }) });
  view.scrollDOM.tabIndex = 0; // so that it scrolls by the keyboard where nothing may be typed

  function offset(line: number, column: number): number {
    const l = view.state.doc.line(Math.max(1, Math.min(line, view.state.doc.lines)));
    return Math.min(l.to, l.from + Math.max(0, column - 1));
  }

  function go(at: number) {
    view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: 'center' }) });
    view.focus();
  }

  return {
    text: () => view.state.doc.toString(),
    replace(t) {
      // Only the lines that differ, so that the cursor stays where it is.
      const doc = view.state.doc;
      const lines = t.split('\n');
      const changes = hunks(doc.toString().split('\n'), lines).map((h) => {
        const put = lines.slice(h.c, h.d);
        if (h.b < doc.lines) return { from: doc.line(h.a + 1).from, to: doc.line(h.b + 1).from, insert: put.map((l) => `${l}\n`).join('') };
        return { from: h.a > 0 ? doc.line(h.a).to : 0, to: doc.length, insert: (h.a > 0 && put.length > 0 ? '\n' : '') + put.join('\n') };
      });
      view.dispatch({ changes });
    },
    base(t) {
      view.dispatch({ effects: setBase.of(t === null ? null : t.split('\n')) });
    },
    changed: () => view.state.field(changed).count,
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
    jump: (line, column) => go(offset(line, column)),
    point: (pointer) => go(nearest(view.state.doc.toString(), pointer)),
    destroy() {
      clearTimeout(rests);
      view.destroy();
    },
  };
}
