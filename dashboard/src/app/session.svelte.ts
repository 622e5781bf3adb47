// Who is signed in. The cookie of the session is out of reach here; the server says whose it is.

import { call, onExpired, post } from '../api/client';
import type { Operator, Right, Session } from '../api/types';

class SessionState {
  operator = $state<Operator | null>(null);
  /** Whether the server has been asked. */
  known = $state(false);
  /** Whether somebody is asked for the password again, in the middle of what they do. */
  asking = $state(false);
  private answers: ((signedIn: boolean) => void)[] = [];

  constructor() {
    onExpired(() => this.again());
  }

  async load() {
    const s = await call<Session & object>('session', { quiet: true });
    this.operator = s.operator;
    this.known = true;
  }

  /** Signs in with an address and a password, or with the code of a link. */
  async signIn(by: { email: string; password: string } | { code: string }) {
    await post('sessions', by, { quiet: true });
    await this.load();
  }

  async signOut() {
    await call('session', { method: 'DELETE', quiet: true });
    this.operator = null;
  }

  has(right: Right, instance: string): boolean {
    const r = this.operator?.rights;
    return !!r && (r.server.includes(right) || (r.instances[instance]?.includes(right) ?? false));
  }

  /** Asks for the password of who was signed in. It resolves to whether they are again. */
  private again(): Promise<boolean> {
    if (!this.operator) return Promise.resolve(false);
    this.asking = true;
    return new Promise((resolve) => this.answers.push(resolve));
  }

  /** Ends the question for the password. */
  answered(signedIn: boolean) {
    this.asking = false;
    if (!signedIn) this.operator = null;
    for (const f of this.answers.splice(0)) f(signedIn);
  }
}

export const session = new SessionState();
