// The time as pages show it, once a second.

import { settings } from './settings.svelte';
import { bothTimes, clockTime, fullTime, shortTime } from '../data/format';

class Now {
  date = $state(new Date());

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.date = new Date();
    }, 1000);
  }
}

export const now = new Now();

const asDate = (t: Date | string | number) => (t instanceof Date ? t : new Date(t));

/** A time as short as it may be. */
export const short = (t: Date | string | number) => shortTime(asDate(t), settings.zone, now.date);
/** Day and time, with the zone. */
export const full = (t: Date | string | number) => `${fullTime(asDate(t), settings.zone)}${settings.zone === 'utc' ? ' UTC' : ''}`;
/** The time of day to the millisecond. */
export const precise = (t: Date | string | number) => clockTime(asDate(t), settings.zone, true);
/** Both writings, for a title. */
export const both = (t: Date | string | number) => bothTimes(asDate(t));
