// Shortcuts of the keyboard. None works while something is typed, but for the palette.

import { environment } from './environment.svelte';
import { pages } from './pages';
import { address } from './router.svelte';

function typing(e: KeyboardEvent): boolean {
  const t = e.target as HTMLElement;
  return t.isContentEditable || /^(TEXTAREA|SELECT)$/.test(t.tagName) || (t instanceof HTMLInputElement && !t.readOnly && !/^(range|radio|checkbox|button)$/.test(t.type));
}

class Shortcuts {
  palette = $state(false);
  list = $state(false);
  /** The id of an error whose record is shown, '' for none. */
  failure = $state('');
  private waiting = false;
  private timer = 0;

  /** Listens until the returned function is called. */
  listen() {
    const f = (e: KeyboardEvent) => this.pressed(e);
    addEventListener('keydown', f);
    return () => removeEventListener('keydown', f);
  }

  private pressed(e: KeyboardEvent) {
    if ((e.ctrlKey || e.metaKey) && !e.shiftKey && !e.altKey && e.key.toLowerCase() === 'k') {
      e.preventDefault();
      if (!document.querySelector('dialog[open]')) this.palette = true;
      return;
    }
    if (e.ctrlKey || e.metaKey || e.altKey || typing(e) || document.querySelector('dialog[open]')) return;
    if (this.waiting) {
      this.waiting = false;
      const page = pages.find((p) => p.key === e.key && environment.has(p.right));
      if (page && environment.instance) {
        e.preventDefault();
        address.go(environment.page(page.path));
      }
      return;
    }
    if (e.key === 'g') {
      this.waiting = true;
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => (this.waiting = false), 1500);
    } else if (e.key === '?') {
      e.preventDefault();
      this.list = true;
    }
  }
}

export const shortcuts = new Shortcuts();
