// What somebody has chosen for themselves, kept in this browser.

import type { Zone } from '../data/format';

export type Theme = 'system' | 'light' | 'dark';

function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // storage is switched off
  }
}

function keep(key: string, value: string) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // It counts until the page is left.
  }
}

class Settings {
  theme = $state<Theme>((stored('j17.theme') as Theme | null) ?? 'system');
  zone = $state<Zone>(stored('j17.zone') === 'local' ? 'local' : 'utc');
  private dark = matchMedia('(prefers-color-scheme: dark)');

  constructor() {
    this.dark.addEventListener('change', () => this.apply());
    this.apply();
  }

  chooseTheme(theme: Theme) {
    this.theme = theme;
    keep('j17.theme', theme);
    this.apply();
  }

  chooseZone(zone: Zone) {
    this.zone = zone;
    keep('j17.zone', zone);
  }

  private apply() {
    document.documentElement.dataset.theme = this.theme === 'system' ? (this.dark.matches ? 'dark' : 'light') : this.theme;
  }
}

export const settings = new Settings();
