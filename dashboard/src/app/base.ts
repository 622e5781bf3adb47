// Where the dashboard and the API are. The server writes both into the page, with the path that a proxy puts in front of them.

const html = document.documentElement;

/** The path of the dashboard, with a slash at its end. */
export const base: string = html.dataset.base ?? '/ui/';

/** The path of the control API, with a slash at its end. */
export const api: string = html.dataset.api ?? '/api/';

/** The nonce for styles that libraries add, '' where the page has none. */
export const nonce: string = document.querySelector<HTMLElement>('script[nonce]')?.nonce ?? '';
