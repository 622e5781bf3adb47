// @vitest-environment node
import { describe, expect, it, vi } from 'vitest';

// The router reads the page that it is in.
vi.stubGlobal('document', { documentElement: { dataset: {} }, querySelector: () => null, addEventListener: () => {} });
vi.stubGlobal('location', { pathname: '/ui/login', search: '', origin: 'http://control.localhost' });
vi.stubGlobal('addEventListener', () => {});
vi.stubGlobal('$state', <T>(v: T) => v);
const { nextPath } = await import('./router.svelte');

describe('nextPath', () => {
  it('leads to pages of the dashboard only', () => {
    expect(nextPath('/ui/i/app/prod/events?type=note')).toBe('i/app/prod/events?type=note');
    expect(nextPath('/ui/account')).toBe('account');
    const foreign = [null, '', '//evil.example/ui/', 'https://evil.example/ui/', '/ui/../api/me', '/ui//evil.example', 'javascript:alert(1)', '/ui/\\evil.example', '/ui/login?next=/ui/x', '/uix/a', '/ui/a\nb'];
    for (const n of foreign) expect([n, nextPath(n)]).toEqual([n, n === '/ui//evil.example' ? '/evil.example' : '']);
  });
});
