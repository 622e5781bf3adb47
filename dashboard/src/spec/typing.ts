// What is typed over a selection. The browser would keep the looks of what it replaces in an attribute for styles, which the policy forbids, and
// say so on the console each time.

import type { Extension } from '@codemirror/state';
import { EditorView } from '@codemirror/view';

/** Replaces a selection by what is typed, before the browser does it. */
export const overSelections: Extension = EditorView.domEventHandlers({
  beforeinput(e, view) {
    const { from, to, empty } = view.state.selection.main;
    const text = e.data;
    if (e.inputType !== 'insertText' || !text || empty || e.isComposing || view.state.readOnly) return false;
    const insert = () => view.state.update(view.state.replaceSelection(text), { userEvent: 'input.type', scrollIntoView: true });
    if (!view.state.facet(EditorView.inputHandler).some((f) => f(view, from, to, text, insert))) view.dispatch(insert());
    e.preventDefault();
    return true;
  },
});
