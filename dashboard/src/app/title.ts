import { environment } from './environment.svelte';

/** Sets the title of the tab: the page's heading first, the environment behind it. */
export function title(heading: string) {
  const where = environment.instance ? ` · ${environment.instance.name}/${environment.env}` : '';
  document.title = `${heading}${where} · j17`;
}
