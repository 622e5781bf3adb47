// Specs to start from: the examples that the sources have, each loaded when it is asked for.

export interface Template {
  name: string;
  title: string;
  about: string;
  load: () => Promise<string>;
}

const text = (f: () => Promise<{ default: string }>) => async () => (await f()).default;

export const templates: Template[] = [
  { name: 'counter', title: 'Counter', about: 'One type with one event: the smallest spec.', load: text(() => import('../../../examples/counter/spec.json?raw')) },
  { name: 'orders', title: 'Orders', about: 'A shop: orders, customers, payments that arrive twice.', load: text(() => import('../../../examples/orders/spec.json?raw')) },
  { name: 'booking', title: 'Booking', about: 'Seats that are taken once, by conditions over events.', load: text(() => import('../../../examples/booking/spec.json?raw')) },
  { name: 'ledger', title: 'Ledger', about: 'Accounts whose transfers balance.', load: text(() => import('../../../examples/ledger/spec.json?raw')) },
  { name: 'reminders', title: 'Reminders', about: 'Events that come later, and are called off.', load: text(() => import('../../../examples/reminders/spec.json?raw')) },
  { name: 'checkout', title: 'Checkout', about: 'A saga over stock and payment that undoes itself.', load: text(() => import('../../../examples/checkout/spec.json?raw')) },
  { name: 'taskboard', title: 'Task board', about: 'Lists for screens: projections with indexes.', load: text(() => import('../../../examples/taskboard/spec.json?raw')) },
  { name: 'storefinder', title: 'Store finder', about: 'Places on a map, and what is near.', load: text(() => import('../../../examples/storefinder/spec.json?raw')) },
];
